package flows

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// A reader that follows gets an answer after the next change, at once if there was one, and none when it has gone.
func TestFollowWaitsForAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Node: "node-1", Every: time.Second, Folder: t.TempDir(), Name: "test", Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		news, waiting := make(chan flows.Flow, 1), atomic.Int64{}
		go func() {
			_ = w.Run(ctx, Loop{Do: func(_ context.Context, calls ...vpp.Call) []vpp.Reply {
				if m, ok := calls[0].Msg.(*vlib.CliInband); ok && m.Cmd == "pcap trace status" { // the watcher's own goroutine asks it
					waiting.Store(int64(len(w.waiting)))
					select {
					case f := <-news:
						w.store.Add(f)
					default:
					}
				}
				out := make([]vpp.Reply, len(calls))
				for i := range out {
					out[i].Err = vpp.ErrDisconnected
				}
				return out
			}})
		}()
		add := func(port uint16) { // at the next read
			news <- flows.Flow{Source: flows.Peer{Address: netip.MustParseAddr("10.1.1.1")}, Port: port}
		}
		follow := func(ctx context.Context, after uint64) <-chan *Answer {
			out := make(chan *Answer, 1)
			go func() {
				a, err := w.Follow(ctx, after)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				out <- a
			}()
			synctest.Wait()
			return out
		}
		first := follow(ctx, 0)
		time.Sleep(5 * time.Second)
		if len(first) != 0 {
			t.Fatal("an answer without a change")
		}
		gone, end := context.WithCancel(ctx)
		second := follow(gone, 0)
		end()
		if a := <-second; a != nil {
			t.Errorf("%+v for a reader that has gone", a)
		}
		time.Sleep(2 * time.Second) // the reads after it
		synctest.Wait()
		if n := waiting.Load(); n != 1 {
			t.Errorf("%d readers wait, want the one that has not gone", n)
		}
		add(80)
		if a := <-first; a.Next != 1 || len(a.Flows) != 1 || a.Flows[0].Port != 80 {
			t.Errorf("after the first change: %+v", a)
		}
		add(81)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		began := time.Now()
		if a := <-follow(ctx, 1); a.Next != 2 || len(a.Flows) != 1 || a.Flows[0].Port != 81 {
			t.Errorf("a change that was there: %+v", a)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("a change that was there took %s", waited)
		}
		if a, err := w.All(ctx, 0); err != nil || len(a.Flows) != 2 {
			t.Errorf("all: %+v, %v", a, err)
		}
	})
}

// Lists that were read for a connection stay known while nothing new is seen.
func TestQuietTimeKeepsLists(t *testing.T) {
	w := New(Config{Node: "node-1", Every: time.Second, Folder: t.TempDir(), Name: "test", Logger: slog.New(slog.DiscardHandler)})
	w.rules["web"] = &boxes{used: true}
	for range 3 {
		w.Look(t.Context(), Loop{
			Do: func(_ context.Context, calls ...vpp.Call) []vpp.Reply {
				out := make([]vpp.Reply, len(calls))
				for i := range out {
					out[i].Err = vpp.ErrDisconnected
				}
				return out
			},
			InLoop: func(_ context.Context, f func()) error { f(); return nil }, Policies: &policy.Processor{}, Objects: func() []model.Object { return nil },
		})
	}
	if w.rules["web"] == nil {
		t.Error("the list was dropped")
	}
}

// Dropped packets are read as often as configured at least, and the other sources once a period.
func TestDropsAreReadMoreOften(t *testing.T) {
	for every, part := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 100 * time.Millisecond, 300 * time.Millisecond: 150 * time.Millisecond, time.Second: DropsEvery, 10 * time.Second: DropsEvery,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := New(Config{Node: "node-1", Every: every, DropsEvery: DropsEvery, Folder: t.TempDir(), Name: "test", Logger: slog.New(slog.DiscardHandler)})
			ctx, stop := context.WithTimeout(t.Context(), time.Minute+time.Millisecond)
			defer stop()
			begin := time.Now()
			reads := map[string][]time.Duration{}
			_ = w.Run(ctx, Loop{Do: func(_ context.Context, calls ...vpp.Call) []vpp.Reply {
				if m, ok := calls[0].Msg.(*vlib.CliInband); ok {
					reads[m.Cmd] = append(reads[m.Cmd], time.Since(begin))
				}
				return slices.Repeat([]vpp.Reply{{Err: vpp.ErrDisconnected}}, len(calls))
			}})
			for command, pause := range map[string]time.Duration{"pcap trace status": part, "show acl-plugin sessions": every} {
				var want []time.Duration
				for at := pause; at <= time.Minute; at += pause {
					want = append(want, at)
				}
				if !slices.Equal(reads[command], want) {
					t.Errorf("period %s: %q at %v, want each %s", every, command, reads[command], pause)
				}
			}
		})
	}
}

// While a table takes long to read, and its many connections are explained, dropped packets are read, and readers get answers.
func TestTablesDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Node: "node-1", Every: time.Second, DropsEvery: DropsEvery, Folder: t.TempDir(), Name: "test", Logger: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		const tableTakes, partTakes, connections = 5 * time.Second, 20 * time.Millisecond, 40 * atOnce
		var table passing
		for n := range connections {
			table = append(table, endsAt("10.1.1.2:80", netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}), 40000).String()))
		}
		begin := time.Now()
		var drops []time.Duration
		do := func(_ context.Context, calls ...vpp.Call) []vpp.Reply {
			switch m := calls[0].Msg.(type) {
			case *vlib.CliInband:
				if m.Cmd == "pcap trace status" {
					drops = append(drops, time.Since(begin))
				}
				text := "Sessions active: add 100000 - deact 0 = 100000\n"
				return []vpp.Reply{{Msg: &vlib.CliInbandReply{Reply: text}}}
			case *nat44_ed.Nat44UserSessionV3Dump:
				time.Sleep(tableTakes)
			}
			return table.do(ctx, calls...)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- w.Run(ctx, Loop{Do: do, InLoop: func(_ context.Context, f func()) error { time.Sleep(partTakes); f(); return nil }, Policies: nil})
		}()
		longest, shown := time.Duration(0), 0
		for ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
			asked := time.Now()
			if a, err := w.All(ctx, 0); err == nil {
				longest, shown = max(longest, time.Since(asked)), max(shown, len(a.Flows))
			}
		}
		<-ended
		if longest > 3*partTakes {
			t.Errorf("a reader waited for %s", longest)
		}
		for i := 1; i < len(drops); i++ {
			if pause := drops[i] - drops[i-1]; pause > 2*DropsEvery {
				t.Errorf("dropped packets were not read for %s, at %s", pause, drops[i])
			}
		}
		if len(drops) < 60 {
			t.Errorf("dropped packets were read %d times", len(drops))
		}
	})
}
