package calc

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/contiv-agent/contiv-agent/calc/labelindex"
	"github.com/contiv-agent/contiv-agent/model"
)

// Remaining counts what a graph still holds. Numbers given back and scratch space do not count.
func (g *Graph) Remaining() map[string]int {
	out := map[string]int{}
	count := func(owner string, v any) {
		r := reflect.Indirect(reflect.ValueOf(v))
		for i := range r.NumField() {
			if f := r.Field(i); f.Kind() == reflect.Map && f.Len() > 0 {
				out[owner+"."+r.Type().Field(i).Name] = f.Len()
			}
		}
	}
	count("graph", g)
	count("workloads", &g.workloads)
	count("sets", g.sets)
	count("owners", &g.sets.owners)
	count("services", &g.sets.services)
	count("policies", g.policies)
	count("endpoints", g.endpoints)
	for part, n := range g.routes.Held() {
		out["routes."+part] = n
	}
	for part, n := range g.vteps.Held() {
		out["vteps."+part] = n
	}
	for name, x := range map[string]*labelindex.Index{"sets.index": g.sets.index, "policies.local": g.policies.local} {
		for part, n := range x.Held() {
			out[name+"."+part] = n
		}
	}
	for part, n := range g.passthru.Held() {
		out["passthru."+part] = n
	}
	for k, n := range out {
		if n == 0 {
			delete(out, k)
		}
	}
	return out
}

func TestRemainingCountsEveryPart(t *testing.T) {
	g := New(Config{Node: "n1"})
	if r := g.Remaining(); len(r) > 0 {
		t.Errorf("an empty graph holds %v", r)
	}
	g.SetWorkload(model.WorkloadID{Node: "n1"}, &model.WorkloadEndpoint{
		Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, Labels: map[string]string{"a": "b"}, Profiles: []string{"p"},
	})
	for _, want := range []string{"owners.hosts", "workloads.byPlace", "sets.index.parents", "sets.index.labels.keys", "routes.wepNets"} {
		if g.Remaining()[want] != 1 {
			t.Errorf("%s: %v", want, g.Remaining())
		}
	}
}
