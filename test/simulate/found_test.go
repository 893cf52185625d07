package simulate

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/verify"
)

// A connection that does not continue, and one that continues with an endpoint that its Service does not have, are found.
func TestConnectionsAreFound(t *testing.T) {
	for name, spoil := range map[string]func(*run, *version){
		"all the time": func(r *run, _ *version) { r.nodes[0].sim.Restart() }, // the agent does nothing before the next moment of virtual time
		"any more":     func(_ *run, v *version) { v.fronts = map[frontend][]netip.AddrPort{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(Draw(3), Config{Dir: t.TempDir()})
				end, err := r.begin()
				defer end()
				if err != nil {
					t.Fatal(err)
				}
				v := r.history[r.now]
				r.talks = slices.DeleteFunc(r.talks, func(c *dialled) bool { return c.direct || c.from != r.nodes[0] || c.request.Dst.Is6() })
				if err := r.checkDialled(v); err != nil || len(r.talks) == 0 {
					t.Fatalf("%d connections: %v", len(r.talks), err)
				}
				spoil(r, v)
				if err := r.checkDialled(v); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("not found: %v", err)
				}
			})
		})
	}
}

// Clients with affinity keep their endpoint when a Service gets another one, and their connections continue.
func TestAffinityOutlivesAnotherEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(Draw(affinitySeed), Config{Dir: t.TempDir()})
		end, err := r.begin()
		defer end()
		if err != nil {
			t.Fatal(err)
		}
		was := r.history[0]
		r.talks = slices.DeleteFunc(r.talks, func(c *dialled) bool { return c.direct || c.request.Dst.Is6() || !was.sticky[c.frontend()] })
		now, err := newVersion(withAnotherEndpoint(was))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range r.nodes {
			n.sim.ClearLog()
		}
		before, talks := r.Continued, len(r.talks)
		r.history = append(r.history, now)
		r.round = setting{versions: []int{0, len(r.history) - 1}}
		r.moveTo(len(r.history) - 1)
		if err := r.rest("another endpoint", quiet); err != nil {
			t.Error(err)
		}
		wrote := 0
		for _, n := range r.nodes {
			wrote += n.sim.Writes()
		}
		if talks == 0 || r.Continued < before+talks || wrote == 0 {
			t.Errorf("%d connections, %d packets, %d writes", talks, r.Continued-before, wrote)
		}
	})
}

// affinitySeed draws a cluster in which clients dial a Service with affinity that has not all pods as endpoints.
const affinitySeed = 5

// withAnotherEndpoint returns the objects of a version, where each IPv4 slice has a further endpoint without a pod.
func withAnotherEndpoint(v *version) (out []policy.Object) {
	for _, o := range v.stored {
		o := o.(policy.Object)
		if s, ok := o.(*discoveryv1.EndpointSlice); ok && s.AddressType == discoveryv1.AddressTypeIPv4 {
			s = s.DeepCopy()
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"198.51.100.200"}})
			o = s
		}
		out = append(out, o)
	}
	return out
}

// TestTooBig: only a drop is no difference, and only if the agent says of a policy, a pod of the packet, or its namespace that it denies.
func TestTooBig(t *testing.T) {
	const bytes, rules = "rule 0 is too big to be written out", "its policies make too many rules: what they allow is denied"
	drop := &verify.Difference{Lists: []verify.ListVerdict{{Pod: "dev/a"}}}
	for name, c := range map[string]struct {
		st   status.Status
		d    *verify.Difference
		want bool
	}{
		"nothing is said":   {status.Status{}, drop, false},
		"its pod":           {status.Status{Notes: []status.Note{{Object: "Pod dev/a", Reason: rules}}}, drop, true},
		"another pod":       {status.Status{Notes: []status.Note{{Object: "Pod dev/b", Reason: rules}}}, drop, false},
		"its namespace":     {status.Status{Notes: []status.Note{{Object: "Namespace dev", Reason: bytes}}}, drop, true},
		"another namespace": {status.Status{Notes: []status.Note{{Object: "Namespace prod", Reason: bytes}}}, drop, false},
		"another reason":    {status.Status{Notes: []status.Note{{Object: "Pod dev/a", Reason: "it is isolated"}}}, drop, false},
		"a policy":          {status.Status{Policies: []status.Policy{{Reasons: []string{bytes}}}}, drop, true},
		"VPP passes it":     {status.Status{Policies: []status.Policy{{Reasons: []string{bytes}}}}, &verify.Difference{VPPPasses: true, Lists: drop.Lists}, false},
	} {
		if got := saysTooBig(&c.st, c.d); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
