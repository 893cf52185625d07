package servers

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/test/simulate/etcdserver"
	"github.com/contiv-agent/contiv-agent/test/simulate/network"
)

// configures is a stand-in of an agent: VPP has each value at once.
func configures(ev event.Event) {
	ext, ok := ev.(*event.External)
	if !ok || ext.Result == nil {
		return
	}
	out := &event.ExternalResult{}
	for key := range ext.Values {
		out.Values = append(out.Values, event.ValueStatus{Key: key, State: event.Configured})
	}
	ext.Result <- out
}

// TestLeaseIsRenewed: statuses stay in etcd under one lease, which an agent renews three times in its time, also after a connection that was lost. They are
// removed while etcd cannot be reached for longer than that, and a lost lease is replaced when its next renewal is due.
func TestLeaseIsRenewed(t *testing.T) {
	const ttl = 30 * time.Second
	away := func(what func(*network.Faults, int), d time.Duration) func(*Etcd) {
		return func(e *Etcd) {
			e.Net.Change(func(f *network.Faults) { what(f, 1) })
			time.AfterFunc(d, func() { e.Net.Change(func(f *network.Faults) { what(f, -1) }) })
		}
	}
	cut := func(f *network.Faults, by int) { f.Cut += by }
	hung := func(f *network.Faults, by int) { f.Hung += by }
	for what, test := range map[string]struct {
		fault func(*Etcd)
		gone  time.Duration // how long etcd has no status; 0: it has one all the time
	}{
		"nothing":                    {fault: func(*Etcd) {}},
		"a lost connection":          {fault: func(e *Etcd) { e.Net.Sever() }},
		"etcd is away for a third":   {fault: away(cut, ttl/3)},
		"etcd hangs for half of it":  {fault: away(hung, ttl/2)},
		"etcd is away for ten times": {fault: away(cut, 10*ttl), gone: 10*ttl + 10*time.Second},
		"a lost lease":               {fault: func(e *Etcd) { e.Server.LoseLeases() }, gone: ttl/3 + time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := etcdserver.New()
				defer s.Stop()
				e := JoinEtcd(s, "node")
				src, err := e.Source(func() bool { return false }, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _ = src.Run(ctx, configures) })
				defer running.Wait()
				defer end()
				missing := func(d time.Duration) (gone time.Duration) {
					for range int(d / (100 * time.Millisecond)) {
						time.Sleep(100 * time.Millisecond)
						if len(s.Values(e.root()+etcdStatus)) != 1 {
							gone += 100 * time.Millisecond
						}
					}
					return gone
				}
				time.Sleep(10 * time.Second)
				before := s.Renewals()
				if gone, n := missing(10*time.Minute), s.Renewals()-before; gone > 0 || n < 59 || n > 61 {
					t.Fatalf("without a fault: %d renewals in 10 minutes, and no status for %s", n, gone)
				}
				test.fault(e)
				if gone := missing(10 * time.Minute); (gone > 0) != (test.gone > 0) || gone > test.gone {
					t.Errorf("etcd has no status for %s", gone)
				}
			})
		})
	}
}

// TestConnectionsStay: the connections of an agent stay without a change for longer than etcd permits pings on a connection without a stream, with a lease
// that is long, and so do those that replace lost ones.
func TestConnectionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcdserver.New()
		defer s.Stop()
		e := JoinEtcd(s, "node")
		e.TTL = 10 * time.Minute
		var dials atomic.Int64
		src, err := e.Source(func() bool { dials.Add(1); return false }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = src.Run(ctx, configures) })
		defer running.Wait()
		defer end()
		before := int64(0) // the client connects while it is made, beside this goroutine
		for _, what := range []string{"the first", "the next"} {
			time.Sleep(5 * time.Second)
			made := dials.Load()
			time.Sleep(20 * time.Minute)
			if again := dials.Load() - made; made == before || again > 0 {
				t.Errorf("%s: %d connections, and %d later", what, made-before, again)
			}
			before = dials.Load()
			e.Net.Sever()
		}
	})
}
