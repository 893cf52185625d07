package flows

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// A reader that follows gets an answer after the next change, at once if there was one, and none when it has gone.
func TestFollowWaitsForAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Node: "node-1", Every: time.Second, Folder: t.TempDir(), Name: "test", Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = w.Run(ctx, Loop{Do: func(_ context.Context, calls ...vpp.Call) []vpp.Reply {
				out := make([]vpp.Reply, len(calls))
				for i := range out {
					out[i].Err = vpp.ErrDisconnected
				}
				return out
			}})
		}()
		add := func(port uint16) {
			synctest.Wait() // Run waits
			w.store.Add(flows.Flow{Source: flows.Peer{Address: netip.MustParseAddr("10.1.1.1")}, Port: port})
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
		time.Sleep(time.Second)
		synctest.Wait()
		if len(w.waiting) != 1 {
			t.Errorf("%d readers wait, want the one that has not gone", len(w.waiting))
		}
		add(80)
		if a := <-first; a.Next != 1 || len(a.Flows) != 1 || a.Flows[0].Port != 80 {
			t.Errorf("after the first change: %+v", a)
		}
		add(81)
		if a := <-follow(ctx, 1); a.Next != 2 || len(a.Flows) != 1 || a.Flows[0].Port != 81 {
			t.Errorf("a change that was there: %+v", a)
		}
		if a, err := w.All(ctx, 0); err != nil || len(a.Flows) != 2 {
			t.Errorf("all: %+v, %v", a, err)
		}
	})
}
