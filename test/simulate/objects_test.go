package simulate

import (
	"reflect"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/simulate/apiserver"
)

// version is the cluster at one moment of its history.
type version struct {
	objects map[model.Ref]event.Change
	list    []model.Object // the same, in the generator's order
	stored  []apiserver.Object
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
			v.stored = append(v.stored, o)
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
