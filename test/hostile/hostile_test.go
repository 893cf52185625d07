package hostile

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// memory is what the container of the deployment may have.
const memory = 1 << 30

// noticed is what the victim notices of an attack.
type noticed struct {
	messages int   // to VPP from when both changes are known to when the victim's is programmed
	bytes    int64 // of these
	refused  int   // objects
	peak     uint64
}

func (q noticed) String() string {
	return fmt.Sprintf("%d messages, %d bytes until the victim's change, %d objects refused, heap %d MB at most", q.messages, q.bytes, q.refused, q.peak>>20)
}

// change makes the victim change its policy in the same moment as what is before, and counts until it is in force.
func (n *node) change(t *testing.T, a *Attack, seed uint64) (out noticed) {
	t.Helper()
	port := n.port + 10
	server, client := PodIP(2), PodIP(3)
	before, done := n.written.Load(), false
	n.vpp.After(func(sim.Record) {
		if done {
			return
		}
		out.messages++
		out.bytes = n.written.Load() - before
		done = n.passes("pod-victim/client", client, server, port)
	})
	defer n.vpp.After(nil)
	list := []event.Change{n.policy(port)}
	if a != nil {
		written, err := a.Changes(seed)
		if err != nil {
			t.Fatal(err)
		}
		list = append(written, list...)
	}
	stop := watchHeap()
	n.feed(list)
	out.peak = stop()
	if !done {
		t.Errorf("the victim's change is not in force after %d messages", out.messages)
	}
	return out
}

// watchHeap returns a function that ends the watch and returns the largest heap there was since, beyond that at the start.
func watchHeap() func() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	start, quit, ended := read(), make(chan struct{}), make(chan uint64)
	go func() {
		most := start
		for {
			most = max(most, read())
			select {
			case <-quit:
				ended <- most - start
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(quit); return <-ended }
}

// TestVictimGoesOn: whatever a tenant writes in the moment in which the victim changes a policy, that is programmed, the victim's verdicts
// are right, what asks for too much is refused, and nothing else is.
func TestVictimGoesOn(t *testing.T) {
	limits := budget.Defaults().Within(memory)
	t.Logf("quiet: %s", newNode(t, limits).change(t, nil, 0))
	for i, a := range Attacks() {
		if i%pace.Every(4) != 0 {
			continue
		}
		t.Run(a.Name, func(t *testing.T) { goesOn(t, newNode(t, limits), &a, a.refusedBy(oldVPP)) })
		if a.WholeBytes > 0 {
			t.Run(a.Name+", VPP 25.10", func(t *testing.T) { goesOn(t, newNodeOn(t, limits, "25.10-release"), &a, a.refusedBy("25.10-release")) })
		}
	}
}

// oldVPP is the version of the sim unless a test says otherwise.
const oldVPP = "24.06-release"

// refusedBy is how many objects the agent refuses with such a VPP.
func (a *Attack) refusedBy(version string) int {
	if version == oldVPP {
		return a.Refused + a.WholeBytes
	}
	return a.Refused
}

// goesOn makes the attack, and looks at victim and tenant.
func goesOn(t *testing.T, n *node, a *Attack, refused int) {
	t.Helper()
	got := n.change(t, a, 1)
	if why := n.verdicts(); why != "" {
		t.Error(why)
	}
	for _, name := range n.refused() {
		if got.refused++; !strings.Contains(name, " "+evil+"/") {
			t.Errorf("%s is refused", name)
		}
	}
	if t.Logf("%s", got); got.refused != refused {
		t.Errorf("%d objects are refused, want %d", got.refused, refused)
	}
	if got.messages > mostMessages || got.peak > mostHeap {
		t.Errorf("more than %d messages or %d MB", mostMessages, mostHeap>>20)
	}
}

const (
	mostMessages = 300       // before the victim's change is programmed
	mostHeap     = 512 << 20 // of the agent and of the sim together
)

// refused are the objects with a limit in their status, sorted.
func (n *node) refused() (out []string) {
	st := n.agent.Status()
	for _, p := range st.Policies {
		if p.State == "REFUSED" && strings.Contains(strings.Join(p.Reasons, " "), "--max-") {
			out = append(out, p.Object)
		}
	}
	for _, s := range st.Services {
		if s.State != "CONFIGURED" && strings.Contains(strings.Join(s.Reasons, " "), "--max-") {
			out = append(out, "Service "+s.Name)
		}
	}
	return out
}
