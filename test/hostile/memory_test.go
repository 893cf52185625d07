package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// Environment of a child, which is an agent alone in its process.
const (
	envSocket  = "HOSTILE_SOCKET"
	envAttack  = "HOSTILE_ATTACK"
	envLimited = "HOSTILE_LIMITED"
)

func TestMain(m *testing.M) {
	if os.Getenv(envSocket) != "" {
		if err := child(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// heavy are the attacks whose memory is measured, and the most that the limits admit: four policies of 65,536 rules from each of two namespaces.
func heavy() []Attack {
	return append(Attacks(), Attack{Name: "8 policies of 65,500 rules from 2 namespaces", Objects: func(r *rand.Rand) (out []runtime.Object) {
		for i := range 8 {
			p := blocked(r, fmt.Sprintf("legal-%d", i), i%4, shape{blocks: 1310, ports: 50})
			if i >= 4 {
				p.Namespace = "victim"
				p.Spec.PodSelector.MatchLabels = map[string]string{"n": []string{"client", "other"}[i%2]}
			}
			out = append(out, p)
		}
		return out
	}}, Attack{Name: "3,000 policies of 87 ipBlocks", Refused: 2184, Objects: func(r *rand.Rand) []runtime.Object {
		return policies(r, 3000, shape{blocks: 87, ports: 1})
	}})
}

// child runs an agent against the sim of its parent and prints how much memory it took at most.
func child() error {
	at, err := strconv.Atoi(os.Getenv(envAttack))
	if err != nil {
		return err
	}
	limits := budget.Limits{}
	if os.Getenv(envLimited) != "" {
		limits = budget.Defaults().Within(memory)
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv(envSocket))
	}
	a, err := agent.NewStepper(context.Background(), config(dial, limits))
	if err != nil {
		return err
	}
	defer a.Close()
	feed := func(list []event.Change) error {
		return a.Feed(context.Background(), &event.Update{Source: source, Changes: list}, &event.SyncStatus{Source: source, Status: event.InSync})
	}
	n := &node{}
	list, err := heavy()[at].Changes(1)
	if err != nil {
		return err
	}
	err = feed(append(append(World(), n.policy(80)), list...)) // a start, with all of it there
	if err == nil {
		err = feed([]event.Change{n.policy(90)})
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	fmt.Printf("%s\nrefused: %d\n", regexp.MustCompile(`VmHWM:.*`).Find(text), len((&node{agent: a}).refused()))
	return nil
}

// measure is the largest memory of an agent that starts with an attack, in bytes, and what it refuses.
func measure(t *testing.T, at int, limited bool) (peak int64, refused int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	v, socket, wait, err := sim.Start(ctx, t.TempDir(), sim.Config{Seed: 1, PuntLocal: true, LogLimit: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); v.Close(); wait() }()
	if err := cni.New(v, "node-1").Apply(World()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), envSocket+"="+socket, envAttack+"="+strconv.Itoa(at))
	if limited {
		cmd.Env = append(cmd.Env, envLimited+"=1", fmt.Sprintf("GOMEMLIMIT=%d", memory/10*9))
	}
	out, err := cmd.CombinedOutput()
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB\nrefused: (\d+)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Errorf("%v: %s", err, out)
		return 0, 0
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
	refused, _ = strconv.Atoi(string(m[2]))
	n := node{vpp: v, port: 90}
	if limited {
		if why := n.verdicts(); why != "" {
			t.Error(why)
		}
	}
	return kb << 10, refused
}

// TestMemory: an agent that starts with what a tenant wrote stays within the memory of its container, and serves the victim.
func TestMemory(t *testing.T) {
	if pace.Fewer(2, 2) == 1 {
		t.Skip("the race detector needs two to three times the memory: make wide measures without")
	}
	for i, a := range heavy() {
		if i < len(Attacks()) && a.refusedBy(oldVPP) == 0 && a.Name != "1,000 policies of 50 ipBlocks" {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			got, refused := measure(t, i, true)
			if t.Logf("%d MB, %d objects refused", got>>20, refused); got > memory || refused != a.refusedBy(oldVPP) {
				t.Errorf("%d MB of %d, %d objects refused, want %d", got>>20, memory>>20, refused, a.refusedBy(oldVPP))
			}
			if os.Getenv("CONTIV_WITHOUT_LIMITS") != "" {
				without, _ := measure(t, i, false)
				t.Logf("without limits: %d MB", without>>20)
			}
		})
	}
}
