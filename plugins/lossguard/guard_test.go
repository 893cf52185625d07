package lossguard

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

// rig is a guard with what it emitted.
type rig struct {
	*Guard
	send func(event.Event)
	out  chan event.Event
	log  *bytes.Buffer
}

func newRig(record string, hold time.Duration) *rig {
	r := &rig{out: make(chan event.Event, 1000), log: &bytes.Buffer{}}
	r.Guard = New(Config{Limits: Limits{Share: 50, Least: 20, For: hold}, Record: record, Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	r.send = r.Watch(func(ev event.Event) { r.out <- ev })
	return r
}

func (r *rig) feed(changes ...event.Change) {
	r.send(&event.Update{Source: "kube", Changes: changes})
}

func (r *rig) inSync() { r.send(&event.SyncStatus{Source: "kube", Status: event.InSync}) }

// changes returns the changes emitted since the last call, and whether InSync was.
func (r *rig) changes() (n int, synced bool) {
	for {
		select {
		case ev := <-r.out:
			switch ev := ev.(type) {
			case *event.Update:
				n += len(ev.Changes)
			case *event.SyncStatus:
				synced = synced || ev.Status == event.InSync
			}
		default:
			return n, synced
		}
	}
}

func TestGuardHoldsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("", time.Minute)
		go func() { _ = r.Run(t.Context()) }()
		r.feed(each(put, pods(0, 100))...)
		r.inSync()
		if n, synced := r.changes(); n != 100 || !synced {
			t.Fatalf("%d %t", n, synced)
		}
		r.feed(each(remove, pods(0, 100))...)
		time.Sleep(quiet)
		synctest.Wait()
		if n, _ := r.changes(); n != 0 || len(r.Held()) != 1 || r.Held()[0].Objects != 100 || !strings.Contains(r.log.String(), "level=ERROR") {
			t.Errorf("%d passed; held %v; log %s", n, r.Held(), r.log)
		}
		registry := prometheus.NewRegistry()
		if err := r.Register(registry); err != nil {
			t.Fatal(err)
		}
		if m := samples.Read(t, registry); m[`contiv_removals_held{source="kube"}`] != 100 || m["contiv_holds_total{}"] != 1 {
			t.Errorf("%v", m)
		}
		time.Sleep(59 * time.Second)
		if n, _ := r.changes(); n != 0 {
			t.Errorf("%d passed early", n)
		}
		time.Sleep(2 * time.Second)
		if n, _ := r.changes(); n != 100 || len(r.Held()) != 0 {
			t.Errorf("%d passed, held %v", n, r.Held())
		}
		if m := samples.Read(t, registry); m[`contiv_removals_held{source="kube"}`] != 0 {
			t.Errorf("%v", m)
		}
	})
}

// The times of a hold are those of the guard's clock, whatever time it is.
func TestGuardWithAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("", time.Minute)
		r.cfg.Now = func() time.Time { return time.Now().Add(time.Hour) }
		go func() { _ = r.Run(t.Context()) }()
		r.feed(each(put, pods(0, 100))...)
		r.inSync()
		r.feed(each(remove, pods(0, 100))...)
		r.changes()
		time.Sleep(2 * quiet)
		synctest.Wait()
		if n, _ := r.changes(); n != 0 || len(r.Held()) != 1 {
			t.Errorf("%d passed, held %v", n, r.Held())
		}
		time.Sleep(time.Minute)
		if n, _ := r.changes(); n != 100 || len(r.Held()) != 0 {
			t.Errorf("%d passed, held %v", n, r.Held())
		}
	})
}

func TestGuardWaitsForConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("", 0)
		go func() { _ = r.Run(t.Context()) }()
		r.feed(each(put, pods(0, 100))...)
		r.inSync()
		r.feed(each(remove, pods(0, 100))...)
		r.changes()
		time.Sleep(24 * time.Hour)
		if n, _ := r.changes(); n != 0 || !strings.HasSuffix(r.Held()[0].String(), "is held, until contiv-agent release") {
			t.Errorf("%d passed, held %v", n, r.Held())
		}
		if was := r.Release(); len(was) != 1 || was[0].What != "100 of 100 objects of kind Pod" {
			t.Errorf("%v", was)
		}
		if n, _ := r.changes(); n != 100 || len(r.Held()) != 0 || len(r.Release()) != 0 {
			t.Errorf("%d passed, held %v", n, r.Held())
		}
	})
}

// After a restart of the agent the first sync waits, if the source has far fewer objects than the record says: the loop would remove the rest.
func TestGuardHoldsTheFirstSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	run := func(t *testing.T, f func(r *rig)) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(path, time.Minute)
			ended := make(chan error)
			ctx, stop := context.WithCancel(t.Context())
			go func() { ended <- r.Run(ctx) }()
			f(r)
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	run(t, func(r *rig) { // the first run, which has no record
		r.feed(each(put, pods(0, 100))...)
		r.inSync()
		if _, synced := r.changes(); !synced || len(r.Held()) != 0 {
			t.Error("an agent without a record starts at once")
		}
	})
	for range 2 { // an empty answer does not change the record
		run(t, func(r *rig) {
			r.inSync()
			if _, synced := r.changes(); synced || len(r.Held()) != 1 || !r.Held()[0].AtStart {
				t.Errorf("the first sync is not held: %v", r.Held())
			}
		})
	}
	run(t, func(r *rig) {
		r.inSync()
		r.feed(each(put, pods(0, 60))...)
		if n, synced := r.changes(); n != 60 || !synced || len(r.Held()) != 0 {
			t.Errorf("objects that return end the hold: %d %t %v", n, synced, r.Held())
		}
	})
	run(t, func(r *rig) {
		r.inSync()
		time.Sleep(time.Minute + time.Second)
		if _, synced := r.changes(); !synced || len(r.Held()) != 0 {
			t.Errorf("after its time the first sync passes: %v", r.Held())
		}
	})
	run(t, func(r *rig) {
		r.inSync()
		if _, synced := r.changes(); !synced {
			t.Error("the record is that of the last run")
		}
	})
}

func TestNoGuardHoldsNothing(t *testing.T) {
	var g *Guard
	n := 0
	g.Watch(func(event.Event) { n++ })(&event.Update{})
	if err := g.Run(t.Context()); err != nil || n != 1 || g.Held() != nil || g.Release() != nil {
		t.Error(err, n)
	}
}
