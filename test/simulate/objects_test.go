package simulate

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
)

// version is the cluster at one moment of its history.
type version struct {
	objects map[model.Ref]event.Change
	list    []model.Object // the same, in the generator's order
	changes []event.Change
	spec    *policy.Cluster
	flows   []policy.Flow // a sample of those that are worth a packet
}

// flowsPerVersion is the number of flows that are drawn of each version.
const flowsPerVersion = 60

// history draws the versions of a cluster.
func history(seed uint64, versions int) ([]*version, error) {
	w := generate.NewWorld(seed, generate.Kinds{Admin: true, Cluster: true, Calico: true, Services: true})
	var out []*version
	for i := range versions {
		v := &version{objects: map[model.Ref]event.Change{}}
		var all []generate.Change
		for _, o := range w.Objects() {
			all = append(all, generate.Change{Key: policy.KeyOf(o), Object: o})
		}
		var err error
		if v.changes, err = hear.All(all); err != nil {
			return nil, err
		}
		for _, ch := range v.changes {
			v.objects[ch.Ref] = ch
			if ch.Object != nil {
				v.list = append(v.list, ch.Object)
			}
		}
		if v.spec, err = policy.Read(w.Objects()); err != nil {
			return nil, err
		}
		v.flows = w.Sample(w.Flows(1), flowsPerVersion)
		out = append(out, v)
		if i%3 == 2 {
			w.StepServices()
		}
		w.Step()
	}
	return out, nil
}

// changesBetween are the changes that lead from one state of the objects to another, in the order of their names: removals last.
func changesBetween(from, to map[model.Ref]event.Change) []event.Change {
	var out []event.Change
	for ref, ch := range to {
		if was, had := from[ref]; !had || !reflect.DeepEqual(was.Object, ch.Object) || (was.Err == nil) != (ch.Err == nil) {
			out = append(out, ch)
		}
	}
	for ref := range from {
		if _, stays := to[ref]; !stays {
			out = append(out, event.Change{Ref: ref})
		}
	}
	slices.SortFunc(out, func(a, b event.Change) int {
		if (a.Object == nil) != (b.Object == nil) {
			if a.Object != nil {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Ref.String(), b.Ref.String())
	})
	return out
}

// server is the API server: the objects, and whether clients reach it.
type server struct {
	mu      sync.Mutex
	objects map[model.Ref]event.Change
	cut     int           // faults that make it unreachable
	empty   int           // faults that hide all objects
	changed chan struct{} // closed at the next change
}

func newServer(objects map[model.Ref]event.Change) *server {
	return &server{objects: objects, changed: make(chan struct{})}
}

// change changes the server, and wakes its clients.
func (s *server) change(f func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) look() (objects map[model.Ref]event.Change, cut bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty > 0 {
		return nil, s.cut > 0, s.changed
	}
	return s.objects, s.cut > 0, s.changed
}

// sourceName is the name of the API source for agents.
const sourceName = "kube"

// watch is the source of one agent. Like source/kube, it keeps its state while the server is cut off, and afterwards emits the differences.
type watch struct {
	server *server
	rand   *rand.Rand
}

// Run implements agent.Source.
func (w *watch) Run(ctx context.Context, emit func(event.Event)) error {
	known, started, failing := map[model.Ref]event.Change{}, false, false
	emit(&event.SyncStatus{Source: sourceName})
	for {
		objects, cut, changed := w.server.look()
		switch {
		case cut && !failing:
			status := event.WaitForReady
			if started {
				status = event.InSync
			}
			emit(&event.SyncStatus{Source: sourceName, Status: status, Err: context.DeadlineExceeded})
			failing = true
		case !cut && !started:
			emit(&event.SyncStatus{Source: sourceName, Status: event.ResyncInProgress})
			emit(&event.Update{Source: sourceName, Changes: changesBetween(known, objects)})
			emit(&event.SyncStatus{Source: sourceName, Status: event.InSync})
			known, started, failing = objects, true, false
		case !cut:
			if failing {
				emit(&event.SyncStatus{Source: sourceName, Status: event.InSync})
			}
			w.emitChanges(changesBetween(known, objects), emit)
			known, failing = objects, false
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		t := time.NewTimer(time.Duration(1+w.rand.IntN(300)) * time.Millisecond) // the watch's latency
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

// emitChanges emits changes in any order, since each kind has a watch; in one update or in several.
func (w *watch) emitChanges(changes []event.Change, emit func(event.Event)) {
	w.rand.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	for len(changes) > 0 {
		n := 1 + w.rand.IntN(len(changes))
		emit(&event.Update{Source: sourceName, Changes: changes[:n]})
		changes = changes[n:]
	}
}
