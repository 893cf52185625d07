package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/calc/mirror"
	messages "github.com/contiv-agent/contiv-agent/proto/felix"
)

// heard reads the messages that the peer's driver received, by session.
func heard(file string) (sessions [][]*messages.ToDataplane, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		m := &messages.ToDataplane{}
		if err := protojson.Unmarshal([]byte(line), m); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		if m.SequenceNumber == 0 {
			sessions = append(sessions, nil)
		}
		last := len(sessions) - 1
		if m.SequenceNumber != uint64(len(sessions[last])) {
			return nil, fmt.Errorf("message %d has the number %d", len(sessions[last]), m.SequenceNumber)
		}
		sessions[last] = append(sessions[last], m)
	}
	return sessions, nil
}

// children are the processes a process has started, by the program they run.
func children(parent int, program string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		_, rest, named := strings.Cut(string(raw), ") ")
		fields := strings.Fields(rest)
		if err != nil || !named || len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		dir := filepath.Dir(file)
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && strings.HasPrefix(string(cmdline), program) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestCalcDrivesForeignDriver: `contiv-agent calc` drives a driver written with Felix's own package; the driver is killed
// meanwhile, and gets everything again.
func TestCalcDrivesForeignDriver(t *testing.T) {
	log := filepath.Join(t.TempDir(), "messages")
	driver := peer(t, "driver")
	cmd := exec.Command(product(t), "calc", "--hostname", node, "--use-node-resources", "--driver", driver)
	cmd.Env = append(os.Environ(), "PEER_DRIVER_LOG="+log)
	mine := start(t, "contiv-agent calc --driver", cmd)
	theirs := start(t, "felix's calc", exec.Command(peer(t, "calc"), "--hostname", node, "--use-node-resources"))
	want := mirror.New()
	say := func(line any) {
		raw, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		mine.Send("%s", raw)
		theirs.Send("%s", raw)
	}
	flush := func() {
		say(object{"flush": true})
		for line := theirs.Line(); line != `{"flushed":true}`; line = theirs.Line() {
			m := &messages.ToDataplane{}
			if err := protojson.Unmarshal([]byte(line), m); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			want.Apply([]*messages.ToDataplane{m}, false)
		}
	}
	seed := firstSeed()
	t.Logf("seed %d", seed)
	w := newWorld(seed)
	change := func() {
		entries, err := w.change().Entries()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			say(e)
		}
	}
	// The comparison omits routes, because Felix's depend on the order; and the configuration, to which the name of the node
	// is added, as in Felix's own.
	same := func(session int) error {
		all, err := heard(log)
		if err != nil {
			return err
		}
		if len(all) <= session {
			return fmt.Errorf("it was started %d times", len(all))
		}
		got := mirror.New()
		got.Apply(all[session], true)
		if len(got.Problems) > 0 {
			return fmt.Errorf("a message without what it needs: %v", got.Problems)
		}
		if got.InSyncs != 1 {
			return fmt.Errorf("it received in-sync %d times", got.InSyncs)
		}
		if diff := cmp.Diff(comparable(want.Dump()), comparable(got.Dump())); diff != "" {
			return fmt.Errorf("(-Felix +received):\n%s", diff)
		}
		return nil
	}
	for range 60 {
		change()
	}
	say(object{"status": "in-sync"})
	flush()
	eventually(t, "the driver gets Felix's messages", func() error { return same(0) })
	for range 10 {
		for range 5 {
			change()
		}
		flush()
	}
	eventually(t, "the driver gets the changes", func() error { return same(0) })

	pids := children(mine.cmd.Process.Pid, driver)
	if len(pids) != 1 {
		t.Fatalf("there are drivers %v", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		change()
	}
	flush()
	eventually(t, "the next driver gets everything", func() error { return same(1) })
	eventually(t, "the driver's statuses are written", func() error {
		if !strings.Contains(mine.Log(), `"processStatusUpdate"`) {
			return errors.New("none yet")
		}
		return nil
	})
	second := children(mine.cmd.Process.Pid, driver)
	mine.CloseInput()
	if err := mine.Wait(); err != nil {
		t.Errorf("at the end of its input: %v", err)
	}
	if len(second) != 1 || syscall.Kill(second[0], 0) == nil {
		t.Errorf("drivers %v, of which none is to outlive calc", second)
	}
}

func comparable(dump []string) (out []string) {
	for _, line := range dump {
		if !strings.HasPrefix(line, "Route ") && !strings.HasPrefix(line, "Config ") {
			out = append(out, line)
		}
	}
	return out
}

// TestRunDrivesForeignDriver: `contiv-agent run` enforces policies through that driver, and shows its reports about
// endpoints.
func TestRunDrivesForeignDriver(t *testing.T) {
	dir := t.TempDir()
	log, socket := filepath.Join(dir, "messages"), filepath.Join(dir, "agent.sock")
	manifests := newManifests(t)
	manifests.write("cluster", clusterYAML)
	manifests.write("policy", policyYAML("client"))
	agent := product(t)
	cmd := exec.Command(agent, "run", "--sim", "--manifests", manifests.dir, "--node", node1, "--listen", "", "--journal", "",
		"--status-socket", socket, "--dataplane-driver", peer(t, "driver"))
	cmd.Env = append(os.Environ(), "PEER_DRIVER_LOG="+log)
	start(t, "contiv-agent run", cmd)
	expect := func(what string, check func(dump string) bool) {
		t.Helper()
		eventually(t, what, func() error {
			sessions, err := heard(log)
			if err != nil || len(sessions) == 0 {
				return fmt.Errorf("%d sessions, %v", len(sessions), err)
			}
			m := mirror.New()
			m.Apply(sessions[len(sessions)-1], true)
			dump := strings.Join(m.Dump(), "\n")
			if m.InSyncs != 1 || len(m.Problems) > 0 || !check(dump) {
				return fmt.Errorf("in sync %d times, problems %v, it has:\n%s", m.InSyncs, m.Problems, dump)
			}
			return nil
		})
	}
	expect("the driver has the policy, the endpoints and the set", func(dump string) bool {
		return strings.Contains(dump, `"prod/knp.default.web"`) && strings.Contains(dump, "[10.1.1.3/32]") &&
			strings.Count(dump, "WorkloadEndpoint ") == 3
	})
	eventually(t, "status shows what the driver says", func() error {
		out, err := exec.Command(agent, "status", "--status-socket", socket, "-o", "json").Output()
		var st struct {
			InSync bool
			Driver struct {
				Endpoints []struct{ Name, Status string }
			}
		}
		if err := errors.Join(err, json.Unmarshal(out, &st)); err != nil {
			return err
		}
		up := 0
		for _, e := range st.Driver.Endpoints {
			if e.Status == "up" {
				up++
			}
		}
		if !st.InSync || up != 3 {
			return fmt.Errorf("it shows %s", out)
		}
		return nil
	})
	manifests.write("policy", policyYAML("other"))
	expect("the policy has changed", func(dump string) bool { return strings.Contains(dump, "[10.1.1.4/32]") })
	manifests.remove("policy")
	expect("the policy is gone", func(dump string) bool {
		return !strings.Contains(dump, "knp.default.web") && !strings.Contains(dump, "set s:")
	})
}
