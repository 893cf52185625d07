package scenario

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
)

// relayed is a fan-out server with a client, and the objects that come out of it.
type relayed struct {
	server *fanout.Server
	table  *datastore.Table
	out    chan event.Event
	turn   int
}

// relay starts a server that has been told these objects, and a client.
func relay(t *testing.T, before []event.Change) *relayed {
	t.Helper()
	server, err := fanout.New(fanout.Config{
		Syncers: []wire.SyncerType{wire.Felix}, Modern: []wire.SyncerType{wire.Felix}, BatchEvery: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relayed{server: server, table: datastore.NewTable(datastore.Builtin()), out: make(chan event.Event, 100)}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	t.Cleanup(func() {
		stop()
		go func() {
			for range r.out { // nobody waits for what comes now
			}
		}()
		if err := errors.Join(<-ended, <-ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(r.out)
	})
	r.tell(datastore.Builtin())
	for _, c := range before {
		r.change(c)
	}
	src := typha.New(typha.Config{Addrs: []string{listener.Addr().String()}})
	go func() { ended <- server.Serve(ctx, listener) }()
	go func() { ended <- src.Run(ctx, func(e event.Event) { r.out <- e }) }()
	return r
}

func (r *relayed) change(c event.Change) {
	r.tell(r.table.Apply(c.Ref, c.Keys))
}

// tell tells keys in both dialects.
func (r *relayed) tell(list []calico.KV) {
	for _, modern := range []bool{false, true} {
		b := wire.Batch{Syncer: wire.Felix, Modern: modern, Status: wire.InSync}
		for _, kv := range list {
			if modern {
				kv = datastore.Modern(kv)
			}
			b.KVs = append(b.KVs, wire.KV{Key: kv.Key, Value: kv.Value, Revision: kv.Revision})
		}
		r.server.Publish(b)
	}
}

// settle returns what comes out until all that was told has come: a mark that is told last is seen.
func (r *relayed) settle(t *testing.T) (out []event.Change) {
	t.Helper()
	r.turn++
	mark := strings.Repeat("z", r.turn)
	r.tell([]calico.KV{{Key: datastore.Key{Kind: datastore.KeyProfileLabels, Name: "kns." + mark}.String(), Value: []byte("{}")}})
	for e := range r.out {
		u, ok := e.(*event.Update)
		if !ok {
			continue
		}
		end := false
		for _, c := range u.Changes {
			if c.Ref == (model.Ref{Kind: model.KindNamespace, Name: mark}) {
				end = true // the rest of its batch is said at the same time
				continue
			}
			out = append(out, c)
		}
		if end {
			return out
		}
	}
	t.Fatal("the source has ended")
	return nil
}

// carried reports that a story speaks of nothing that servers do not carry: pods without an address.
func carried(p plot) bool {
	return !slices.ContainsFunc(slices.Concat(p.steps...), func(c event.Change) bool {
		pod, ok := c.Object.(*model.Pod)
		return ok && len(pod.IPs) == 0 && !pod.HostNetwork && !pod.Finished && pod.NodeName != ""
	})
}

// TestThroughAFanOut lets every story happen to agents that hear of it from a fan-out server, all at once as a snapshot, or
// step by step: VPP must hold the same bytes as where they read the manifests.
func TestThroughAFanOut(t *testing.T) {
	for i, p := range plots(t) {
		if !carried(p) || i%everyNth != 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			_, want := p.run(t, way{name: "as written", do: asWritten})
			for _, w := range []way{
				{"as a snapshot", false, func(p plot, c *trace.Cluster) error {
					return c.Apply(background(), relay(t, slices.Concat(p.steps...)).settle(t))
				}},
				{"step by step", false, func(p plot, c *trace.Cluster) error {
					r := relay(t, nil)
					return each(p.steps, func(step []event.Change) error {
						for _, ch := range step {
							r.change(ch)
						}
						return c.Apply(background(), r.settle(t))
					})
				}},
			} {
				_, have := p.run(t, w)
				if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")); diff != "" {
					t.Errorf("%s (-as written +from a fan-out):\n%s", w.name, diff)
				}
			}
		})
	}
}
