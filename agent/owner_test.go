package agent

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/cleanup"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/poll"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// second starts another agent on the VPP of a world, with a separate folder of locks.
func (w *world) second(lock string) *Agent {
	w.t.Helper()
	a, err := New(Config{
		NodeName: "node-2", VPP: vpp.Config{Dial: w.vpp.Dial}, Override: cni.Located(), Lock: lock,
		Sources: map[string]Source{"none": inSync{}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
	return a
}

// inSync is a source without objects.
type inSync struct{}

func (inSync) Run(ctx context.Context, emit func(event.Event)) error {
	emit(&event.SyncStatus{Source: "none", Status: event.InSync})
	<-ctx.Done()
	return ctx.Err()
}

// A second agent on a VPP reverts nothing of the first: it is not ready, and names the owner that it waits for. So does
// cleanup. It takes over when the first ends.
func TestSecondAgentWaits(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "api.sock.owner")
	w := start(t, func(c *Config) { c.Lock = lock })
	w.wait("first sync", firstSync)
	w.settled()
	w.vpp.ClearLog()
	b := w.second(lock)
	poll.Until(t, "the second to say for whom it waits", func() bool {
		why := b.reader.Unready()
		return strings.Contains(why, "another agent owns this VPP") && strings.Contains(why, "node-1")
	})
	st, err := b.Status(t.Context())
	if err != nil || st.Healthy || !slices.ContainsFunc(st.Problems, func(p status.Problem) bool { return p.Object == "VPP" && strings.Contains(p.Text, "on node-1, since ") }) {
		t.Errorf("%+v %v", st, err)
	}
	if c, err := cleanup.New(t.Context(), cleanup.Config{Dial: w.vpp.Dial, Lock: lock}); !errors.Is(err, cleanup.ErrInUse) || !strings.Contains(err.Error(), "node-1") {
		t.Errorf("cleanup beside an agent: %v %v", c, err)
	}
	if n := w.vpp.Writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
	_ = w.stop()
	poll.Until(t, "the second to take over", func() bool { return b.reader.Unready() == "" })
	// Its desired state is empty, so it removes the first agent's objects.
	poll.Until(t, "the second to write", func() bool { return w.vpp.Writes() > 0 })
}

// VPP's list of clients shows two agents that do not see each other's lock, at the second look.
func TestRivalIsSeen(t *testing.T) {
	l := newListening()
	w := start(t, func(c *Config) { c.Lock, c.Reporter = filepath.Join(t.TempDir(), "owner"), l })
	w.wait("first sync", firstSync)
	w.settled()
	b := w.second(filepath.Join(t.TempDir(), "owner"))
	poll.Until(t, "the second", func() bool { return b.conn.State().Connected })
	if !w.agent.rivals.Look(t.Context(), false) || w.agent.rivals.Problem() != "" {
		t.Error("the first look must see it, and wait for the next")
	}
	if !w.agent.rivals.Look(t.Context(), true) {
		t.Error("the second look sees nothing")
	}
	st, err := w.agent.Status(t.Context())
	if err != nil || !slices.ContainsFunc(st.Problems, func(p status.Problem) bool {
		return strings.HasPrefix(p.Text, "another agent, which does not see this agent's lock,")
	}) {
		t.Errorf("%+v %v", st.Problems, err)
	}
	w.report(l, func(rep *event.Report) bool { return slices.Contains(short(rep), "Node node-1 VPPShared") })
}
