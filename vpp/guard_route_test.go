package vpp

import (
	"errors"
	"maps"
	"net/netip"
	"testing"

	"go.fd.io/govpp/binapi/fib_types"
	"pgregory.net/rapid"
)

// TestNextHopRuleLooksAtAllRoutes: the guard refuses a route exactly if afterwards any next hop would resolve by a special route, although it looks only
// at the next hops that the change concerns.
func TestNextHopRuleLooksAtAllRoutes(t *testing.T) {
	prefixes := []string{"10.96.0.0/16", "10.96.0.0/24", "10.96.0.1/32", "10.96.0.2/32", "10.7.0.0/16", "10.8.0.0/16", "0.0.0.0/0"}
	hops := []string{"10.96.0.1", "10.96.0.2", "10.7.0.1"}
	refused := 0
	rapid.Check(t, func(r *rapid.T) {
		g := NewGuard()
		model := map[routeKey]fibRoute{}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			to := rapid.SampledFrom(prefixes).Draw(r, "prefix")
			key := routeKey{0, netip.MustParsePrefix(to)}
			if rapid.IntRange(0, 3).Draw(r, "table") == 0 && model[key].special == 0 {
				key.table = 7
			}
			path := rapid.SampledFrom([]fib_types.FibPath{via5, on(3), bareHop(rapid.SampledFrom(hops).Draw(r, "hop"))}).Draw(r, "path")
			add := rapid.Bool().Draw(r, "add")
			if key.table != 0 && special(path) {
				continue // refused by another rule
			}
			msg := ipRoute(add, key.table, to, path)
			next := maps.Clone(model)
			if delete(next, key); add {
				next[key] = routeOf(key.prefix, []fib_types.FibPath{path})
			}
			want := harmful(next)
			err := g.Check(msg)
			var ge *GuardError
			if got := errors.As(err, &ge); got != want || got && ge.Rule != "route-next-hop" {
				r.Fatalf("add %v %v %v after %v: %v, want harm %v", add, key, path, model, err, want)
			}
			if want {
				refused++
				continue
			}
			g.Observe(msg, Reply{})
			model = next
		}
	})
	if refused < 10 && !testing.Short() { // of fewer checks
		t.Errorf("only %d refusals", refused) // the fewest of 3,000 runs are 32
	}
}

// harmful reports that a next hop of any route resolves by a special route.
func harmful(all map[routeKey]fibRoute) bool {
	for _, r := range all {
		for _, h := range r.hops {
			if _, covered := cover(func(k routeKey) fibRoute { return all[k] }, h); covered {
				return true
			}
		}
	}
	return false
}
