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
	"github.com/contiv-agent/contiv-agent/calico/datastore/encode"
	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
)

// relayed is a fan-out server with a client, and the objects that the client receives.
type relayed struct {
	server *fanout.Server
	table  *encode.Table
	out    chan event.Event
	turn   int
}

// relay starts a server with these objects, and a client.
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
	r := &relayed{server: server, table: encode.NewTable(encode.Builtin()), out: make(chan event.Event, 100)}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	t.Cleanup(func() {
		stop()
		go func() {
			for range r.out { // later changes are discarded
			}
		}()
		if err := errors.Join(<-ended, <-ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(r.out)
	})
	r.publish(encode.Builtin())
	for _, c := range before {
		r.change(c)
	}
	src := typha.New(typha.Config{Addrs: []string{listener.Addr().String()}})
	go func() { ended <- server.Serve(ctx, listener) }()
	go func() { ended <- src.Run(ctx, func(e event.Event) { r.out <- e }) }()
	return r
}

func (r *relayed) change(c event.Change) {
	r.publish(r.table.Apply(c.Ref, c.Keys))
}

// publish publishes keys in both dialects.
func (r *relayed) publish(list []calico.KV) {
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

// settle returns the received objects until all published ones have arrived: it publishes a mark last, and waits for it.
func (r *relayed) settle(t *testing.T) (out []event.Change) {
	t.Helper()
	r.turn++
	mark := strings.Repeat("z", r.turn)
	r.publish([]calico.KV{{Key: datastore.Key{Kind: datastore.KeyProfileLabels, Name: "kns." + mark}.String(), Value: []byte("{}")}})
	for e := range r.out {
		u, ok := e.(*event.Update)
		if !ok {
			continue
		}
		end := false
		for _, c := range u.Changes {
			if c.Ref == (model.Ref{Kind: model.KindNamespace, Name: mark}) {
				end = true // the rest of its batch arrives at the same time
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

// carried reports whether servers carry all objects of a story: they do not carry pods without an address.
func carried(p plot) bool {
	return !slices.ContainsFunc(slices.Concat(p.steps...), func(c event.Change) bool {
		pod, ok := c.Object.(*model.Pod)
		return ok && len(pod.IPs) == 0 && !pod.HostNetwork && !pod.Finished && pod.NodeName != ""
	})
}

// TestThroughAFanOut runs every story with agents behind a fan-out server, which get the objects at once as a snapshot, or
// step by step: VPP must have the same bytes as with agents that read the manifests.
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
