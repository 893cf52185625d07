package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

// TestPace: the loop ticks each second, and after a minute without anything to do, or without VPP, once in five seconds. An event has the present time, however
// long ago the last tick was, and brings back the ticks of each second. The heartbeat is never older than a health check allows.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ticks atomic.Int64
		r := newRecorder()
		c := connected(Config{Sources: []string{"test"}, Observer: Observer{Event: func(ev event.Event) {
			if _, is := ev.(*event.Tick); is {
				ticks.Add(1)
			}
		}}}, r)
		ctx, cancel := context.WithCancel(t.Context())
		in, out, ended := make(chan event.Event), make(chan *event.Txn, 1), make(chan error, 1)
		go func() { ended <- c.Run(ctx, in, out) }()
		in <- inSync("test")
		in <- done(<-out)
		during := func(d time.Duration) int {
			ticks.Store(0)
			for range d / time.Second {
				if time.Sleep(time.Second); time.Since(c.Beat()) > slowTick {
					t.Errorf("the last beat was %s ago", time.Since(c.Beat()))
				}
			}
			synctest.Wait()
			return int(ticks.Load())
		}
		near := func(what string, got, want int) {
			t.Helper()
			if got < want-1 || got > want+1 {
				t.Errorf("%s: %d ticks, want %d", what, got, want)
			}
		}
		near("the first minute", during(time.Minute), 60)
		near("at rest", during(time.Hour), 720)
		time.Sleep(slowTick - time.Second)
		in <- update("web", 1)
		txn := <-out
		if c.Ask(ctx, func(c *Controller) {
			if now := time.Now(); !c.now.Equal(now) {
				t.Errorf("a change at %s counts as one at %s", now, c.now)
			}
		}) != nil || len(txn.Values) != 1 {
			t.Errorf("%+v", txn)
		}
		near("while VPP works", during(time.Hour), 3600)
		in <- done(txn)
		near("the minute after", during(time.Minute), 60)
		near("at rest again", during(time.Hour), 720)
		in <- &event.Committed{Left: []string{"key"}}
		near("VPP lacks a value", during(time.Hour), 3600)
		in <- &event.Committed{}
		in <- &event.VPPStatus{}
		in <- update("web", 2)
		in <- &event.Committed{Seq: (<-out).Seq, Err: context.Canceled, Left: []string{"key"}}
		during(2 * time.Minute)
		near("VPP is away", during(time.Hour), 720)
		in <- &event.VPPStatus{Connected: true}
		near("VPP is back", during(time.Minute), 60)
		cancel()
		<-ended
	})
}
