package status

import (
	"context"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// The loop makes one picture for all readers that wait at a time, none without a change, and pauses in between.
func TestPicturesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = 10 * time.Millisecond
		var taken, steps atomic.Uint64
		p := (&Picture{}).anew()
		g := newGallery(func(context.Context) (*Picture, error) {
			taken.Add(1)
			time.Sleep(cost)
			out := *p
			out.version, out.cost = steps.Load(), cost
			return &out, nil
		}, steps.Load)
		ctx, cancel := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		runs.Go(func() { _ = g.Run(ctx) })
		all := func(n int) {
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					if got, err := g.fresh(ctx); got == nil || err != nil {
						t.Error(got, err)
					}
				})
			}
			wg.Wait()
		}
		steps.Add(1)
		all(100)
		if n := taken.Load(); n > 2 { // one for the first, and one for all others
			t.Errorf("100 who want a picture at once cost %d", n)
		}
		was := taken.Load()
		all(100)
		if n := taken.Load() - was; n != 0 {
			t.Errorf("%d pictures of a loop that has not changed", n)
		}
		was = taken.Load()
		began := time.Now()
		for time.Since(began) < 10*time.Second { // the loop changes permanently, and a reader always waits
			steps.Add(1)
			all(1)
		}
		if n := taken.Load() - was; n > uint64(10*time.Second/(pictureRest*cost)) || n < 10 {
			t.Errorf("%d pictures in 10 s, each %s: want 5 %% of the time", n, cost)
		}
		cancel()
		runs.Wait()
		if _, err := g.fresh(t.Context()); err == nil {
			t.Error("a picture after the end")
		}
	})
}

// The node's clock may be set: the age of a picture has a monotonic reading. Times in a bubble of synctest have none.
func TestAgesDoNotDependOnTheClock(t *testing.T) {
	g := newGallery(func(context.Context) (*Picture, error) { return (&Picture{}).anew(), nil }, func() uint64 { return 1 })
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() { _ = g.Run(ctx) })
	if _, err := g.fresh(ctx); err != nil {
		t.Fatal(err)
	}
	if at := g.lastAt.Load().String(); !strings.Contains(at, " m=") {
		t.Error(at)
	}
	cancel()
	runs.Wait()
}

// A loop that ends no step for 10 s makes the node unready, with and without readers.
func TestReadyzNoticesAStuckLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controller.New(controller.Config{}, controller.NewValues())
		p := &Reader{Loop: Loop{Controller: c}}
		ctx, cancel := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		in, out := make(chan event.Event), make(chan *event.Txn, 1)
		runs.Go(func() { _ = c.Run(ctx, in, out) })
		time.Sleep(30 * time.Second) // only ticks happen
		if why := p.stuck(); why != "" {
			t.Errorf("an idle loop: %s", why)
		}
		end := make(chan struct{})
		runs.Go(func() { _ = c.Ask(ctx, func(*controller.Controller) { <-end }) })
		time.Sleep(stuckLoop - 2*time.Second)
		if why := p.stuck(); why != "" {
			t.Errorf("a loop busy for less than %s: %s", stuckLoop, why)
		}
		time.Sleep(4 * time.Second)
		if why := p.Unready(); !strings.Contains(why, "the event loop has not ended a step for 1") {
			t.Errorf("a loop busy for more than %s: %q", stuckLoop, why)
		}
		close(end)
		synctest.Wait()
		time.Sleep(time.Second)
		if why := p.stuck(); why != "" {
			t.Errorf("a loop that goes on: %s", why)
		}
		cancel()
		runs.Wait()
		if why := p.Unready(); !strings.Contains(why, "stopped") {
			t.Errorf("a loop that has ended: %q", why)
		}
	})
}

// The number of Felix's last message is published after the loop has it, maybe after the loop's last step: a later status
// shows the number.
func TestStatusFollowsFelix(t *testing.T) {
	in, send, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	driver := felix.NewDriver(felix.Config{In: in, Out: out})
	r := &Reader{Loop: Loop{Controller: controller.New(controller.Config{}, controller.NewValues()), Session: attachment.NewSession(&attachment.Felix{Driver: driver}, attachment.Loop{})}}
	g := newGallery(func(context.Context) (*Picture, error) {
		return (&Picture{felix: r.Session.Status(), version: r.version()}).anew(), nil
	}, r.version)
	var runs sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	runs.Go(func() { _ = g.Run(ctx) })
	defer runs.Wait()
	defer cancel()
	shown := func() uint64 {
		p, err := g.fresh(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return p.felix.Sequence
	}
	emitted := make(chan uint64, 1)
	runs.Go(func() {
		_ = driver.Run(ctx, func(ev event.Event) {
			if _, is := ev.(*event.Dataplane); is {
				emitted <- shown() // the loop's last step ends before the number is published
			}
		})
	})
	if err := felix.NewWriter(send).Write(&pb.ToDataplane{SequenceNumber: 7, Payload: &pb.ToDataplane_IpsetRemove{IpsetRemove: &pb.IPSetRemove{Id: "s:a"}}}); err != nil {
		t.Fatal(err)
	}
	if before := <-emitted; before != 0 {
		t.Fatalf("message %d is shown before the loop has it", before)
	}
	for driver.State().Sequence != 7 {
		runtime.Gosched()
	}
	if n := shown(); n != 7 {
		t.Errorf("message %d is shown, want 7", n)
	}
}
