package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// patience is how long anything may take before it counts as never.
const patience = 2 * time.Minute

const sourceName = "bench"

// source emits what it is given.
type source chan event.Event

// Run implements agent.Source.
func (s source) Run(ctx context.Context, emit func(event.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-s:
			emit(ev)
		}
	}
}

// running is an agent that runs; the benchmark sends it the objects of a cluster.
type running struct {
	tb        testing.TB
	agent     *agent.Agent
	source    source
	committed chan *event.Committed
	stop      func()
}

// dialer makes the connection to a VPP.
type dialer func(context.Context) (net.Conn, error)

func socket(path string) dialer {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", path) }
}

// run starts an agent and waits until it has looked at VPP for the first time. Change may be nil.
func run(tb testing.TB, dial dialer, change func(*agent.Config)) *running {
	tb.Helper()
	r := &running{tb: tb, source: make(source), committed: make(chan *event.Committed, 1024)}
	cfg := agent.Config{
		NodeName: nodeName, Process: config.Process{Alone: true, OnCommitted: func(c *event.Committed) { r.committed <- c }}, VPPAgent: vppagent.Config{Journal: filepath.Join(tb.TempDir(), "journal")}, VPP: vpp.Config{Dial: dial, MaxBackoff: 10 * time.Millisecond}, Override: cni.Located(),
		Sources: map[string]agent.Source{sourceName: r.source},
	}
	if change != nil {
		change(&cfg)
	}
	a, err := agent.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Run(ctx) // ends by cancel; whatever else ends it shows as silence
	}()
	r.stop = func() { cancel(); <-ended }
	tb.Cleanup(r.stop)
	r.wait("look at VPP", func(c *event.Committed) bool { return c.Cause == "connected" })
	return r
}

// wait returns the next transaction that fits; a failed one ends the test.
func (r *running) wait(what string, fits func(*event.Committed) bool) *event.Committed {
	r.tb.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case c := <-r.committed:
			switch {
			case c.Err != nil:
				r.tb.Fatalf("%s: %v", c.Cause, c.Err)
			case fits(c):
				return c
			}
		case <-limit.C:
			r.tb.Fatalf("no %s", what)
		}
	}
}

// sync sends all objects to the agent and waits until VPP has them.
func (r *running) sync(changes []event.Change) *event.Committed {
	r.tb.Helper()
	r.source <- &event.Update{Source: sourceName, Changes: changes, At: time.Now()}
	r.source <- &event.SyncStatus{Source: sourceName, Status: event.InSync}
	c := r.wait("first sync", func(c *event.Committed) bool { return c.Resync == event.Full })
	for _, st := range c.Statuses {
		if st.State != event.Configured && st.State != event.Removed {
			r.tb.Fatalf("%s is %v: %s %v", st.Key, st.State, st.Err, st.Details)
		}
	}
	return c
}

// change sends one change to the agent and waits until VPP has acknowledged it.
func (r *running) change(ch event.Change) *event.Committed {
	r.tb.Helper()
	r.source <- &event.Update{Source: sourceName, Changes: []event.Change{ch}, At: time.Now()}
	return r.wait("change", func(c *event.Committed) bool {
		return c.Seq != 0 && c.Resync == event.NoResync && c.Cause != "locate" && c.Cause != "interfaces"
	})
}

// bare is a connection to VPP without an agent.
type bare struct {
	*vpp.Conn
	stop func()
}

func dialBare(tb testing.TB, dial dialer) *bare {
	tb.Helper()
	up := make(chan struct{}, 16)
	c := vpp.New(vpp.Config{Dial: dial, OnState: func(st vpp.State) {
		if st.Connected {
			up <- struct{}{}
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx) // ends by cancel
	}()
	b := &bare{Conn: c, stop: func() { cancel(); <-ended }}
	tb.Cleanup(b.stop)
	select {
	case <-up:
	case <-time.After(patience):
		tb.Fatal("no connection to VPP")
	}
	return b
}

// ask asks VPP the questions of an agent. A refused command is an answer, too: VPP refuses to show what a plugin has that it did not load, and agents ask for
// that.
func (b *bare) ask(calls []vpp.Call) error {
	for i, r := range b.Do(context.Background(), calls...) {
		if _, answered := r.Msg.(*vlib.CliInbandReply); r.Err != nil && !answered {
			return fmt.Errorf("%s %+v: %w", calls[i].Msg.GetMessageName(), calls[i].Msg, r.Err)
		}
	}
	return nil
}

// do makes all calls and fails with the first refusal.
func (b *bare) do(tb testing.TB, calls []vpp.Call) {
	tb.Helper()
	for i, r := range b.Do(context.Background(), calls...) {
		if r.Err != nil {
			tb.Fatalf("%s: %v", calls[i].Msg.GetMessageName(), r.Err)
		}
	}
}

// TestAskTakesRefusedCommandsForAnswers: a real VPP without the cnat plugin refuses `show cnat snat-policy`, which agents ask in each resync.
func TestAskTakesRefusedCommandsForAnswers(t *testing.T) {
	v := startSim(t, newCluster(1, 1, nil))
	defer v.stop()
	conn := dialBare(t, v.dial)
	defer conn.stop()
	refused := []vpp.Call{{Msg: &vlib.CliInband{Cmd: "show nothing of the kind"}}}
	if r := conn.Do(t.Context(), refused...)[0]; r.Err == nil {
		t.Fatalf("it is not refused: %+v", r)
	}
	if err := conn.ask(refused); err != nil {
		t.Error(err)
	}
	if err := conn.ask([]vpp.Call{{Msg: &interfaces.SwInterfaceSetFlags{SwIfIndex: 9999}}}); err == nil {
		t.Error("a message about no interface is refused, and ask does not say so")
	}
}
