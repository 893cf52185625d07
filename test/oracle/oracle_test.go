package oracle

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
)

// How many cases the random test runs: CONTIV_CASES, or enough for a quick look. CONTIV_SEED repeats one world.
const (
	defaultCases  = 300
	stepsPerWorld = 10
	packetsPer    = 12
)

// TestServicesAgreeWithKubernetes grows random clusters step by step; after each step random packets must have the fate
// that Kubernetes promises, from the whole agent on the simulated VPP.
func TestServicesAgreeWithKubernetes(t *testing.T) {
	cases := Setting(t, "CONTIV_CASES", defaultCases)
	first := Setting(t, "CONTIV_SEED", 1)
	worlds := (cases + stepsPerWorld - 1) / stepsPerWorld
	t.Logf("%d cases: seeds %d to %d, %d steps each, %d packets per step", worlds*stepsPerWorld, first, first+worlds-1, stepsPerWorld, packetsPer)
	asked := 0
	for seed := first; seed < first+worlds; seed++ {
		asked += world(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d: repeat with CONTIV_SEED=%d CONTIV_CASES=%d", seed, seed, stepsPerWorld)
		}
	}
	t.Logf("%d packets agreed", asked)
}

func world(t *testing.T, seed uint64) (asked int) {
	ctx := context.Background()
	w := NewWorld(seed)
	c := trace.NewCluster(trace.Config{Seed: seed})
	defer c.Close()
	apply := func(put []model.Object, removed []model.Ref) {
		t.Helper()
		var changes []event.Change
		for _, obj := range put {
			changes = append(changes, event.Change{Ref: obj.Ref(), Object: obj})
		}
		for _, ref := range removed {
			changes = append(changes, event.Change{Ref: ref})
		}
		if err := c.Apply(ctx, changes); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	apply(w.Objects(), nil)
	for step := range stepsPerWorld {
		apply(w.Step())
		cluster := w.Cluster()
		for _, p := range w.Packets(packetsPer) {
			asked++
			if diff := compareFates(cluster, p, c.Answer(question(w, p))); diff != "" {
				t.Errorf("seed %d step %d: %v: %s", seed, step, p, diff)
			}
		}
	}
	restartWritesNothing(t, seed, c)
	sameAsFresh(t, seed, w, c)
	return asked
}

// restartWritesNothing starts the agent of every node again: an unchanged world costs no write.
func restartWritesNothing(t *testing.T, seed uint64, c *trace.Cluster) {
	t.Helper()
	for _, name := range c.Nodes() {
		v := c.Sim(name)
		before := v.Dump()
		v.ClearLog()
		if err := c.RestartAgent(context.Background(), name); err != nil {
			t.Fatalf("seed %d: restart of the agent of %s: %v", seed, name, err)
		}
		if n := v.Writes(); n != 0 {
			t.Errorf("seed %d: a restarted agent wrote %d messages on %s: %v", seed, n, name, v.Log())
		}
		if diff := cmp.Diff(before, v.Dump()); diff != "" {
			t.Errorf("seed %d: restart changed VPP of %s (-before +after):\n%s", seed, name, diff)
		}
	}
}

// sameAsFresh compares every VPP with that of a cluster that was given the final objects only.
func sameAsFresh(t *testing.T, seed uint64, w *World, c *trace.Cluster) {
	t.Helper()
	fresh := trace.NewCluster(trace.Config{Seed: seed})
	defer fresh.Close()
	var changes []event.Change
	for _, obj := range w.Objects() {
		changes = append(changes, event.Change{Ref: obj.Ref(), Object: obj})
	}
	if err := fresh.Apply(context.Background(), changes); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for _, name := range c.Nodes() {
		if diff := cmp.Diff(fresh.Sim(name).Dump(), c.Sim(name).Dump()); diff != "" {
			t.Errorf("seed %d: VPP of %s depends on the way there (-fresh +grown):\n%s", seed, name, diff)
		}
	}
}

func question(w *World, p Packet) trace.Question {
	q := trace.Question{To: p.Dst.String(), Protocol: p.Proto.String()}
	switch p.Class {
	case Outside:
		q.From = fmt.Sprintf("external:%s@%s", p.Src, p.Node)
	case Host:
		q.From = "node:" + p.Node
	default:
		for _, pod := range w.Pods {
			if pod.IPs[0] == p.Src {
				q.From = "pod:" + pod.ID.String()
			}
		}
	}
	return q
}

// compareFates tells how the answer differs from what Kubernetes promises, beyond the limits NAT44 is known to have.
func compareFates(c *Cluster, p Packet, a trace.Answer) string {
	want := c.Expect(p)
	if a.Error != "" {
		return "cannot ask: " + a.Error
	}
	got := Fate(a.Verdict)
	if limit := nat44Limit(c, p, want); limit != "" {
		return judgeLimit(c, p, limit, want, got, a)
	}
	if got != want.Fate {
		return fmt.Sprintf("%s (%s), Kubernetes says %s (%s)", got, a.Reason, want.Fate, want.Why)
	}
	if got != Delivered {
		return ""
	}
	if backends := backendsOf(a); !slices.Equal(backends, want.Backends) {
		return fmt.Sprintf("may reach %v, Kubernetes says %v (%s)", backends, want.Backends, a.Reason)
	}
	return wrongSource(p, want, a)
}

// wrongSource checks that the backend sees the client's address where Kubernetes says so; a client that reaches itself
// cannot be shown its own address.
func wrongSource(p Packet, want Expectation, a trace.Answer) string {
	for _, o := range a.Outcomes {
		at := netip.MustParseAddrPort(o.Address)
		if want.KeepsSource && at.Addr() != p.Src && o.Source != p.Src.String() {
			return fmt.Sprintf("backend %s sees %s, Kubernetes says %s", o.Address, o.Source, p.Src)
		}
		if at.Addr() == p.Src && p.Class == Pod && o.Source == p.Src.String() && want.Service.Name != "" {
			return fmt.Sprintf("%s reaches itself from its own address", p.Src)
		}
	}
	return ""
}

func backendsOf(a trace.Answer) []netip.AddrPort {
	var out []netip.AddrPort
	for _, o := range a.Outcomes {
		out = append(out, netip.MustParseAddrPort(o.Address))
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// The limits of NAT44, as renderer/nat44's README lists them under BUGS.
const (
	localSubset = "one mapping for everybody: clients inside get the local endpoints of an external Local frontend"
	notAnswered = "a client outside who dials an external Local frontend of a node without endpoints is not answered"
	fromOutside = "a client outside who dials a cluster IP is answered by local endpoints only"
	unusedPort  = "an unused port of an external address is rejected, not left to the routes"
)

func nat44Limit(c *Cluster, p Packet, want Expectation) string {
	switch {
	case want.Service.Name == "" && c.externalVIP(p.Dst.Addr()):
		return unusedPort
	case want.Service.Name == "":
		return ""
	case want.External && want.Policy == model.PolicyLocal && p.Class != Outside && want.Fate == Delivered:
		return localSubset
	case want.External && want.Policy == model.PolicyLocal && p.Class == Outside && want.Fate == Dropped:
		return notAnswered
	case !want.External && p.Class == Outside && want.Fate == Delivered:
		return fromOutside
	}
	return ""
}

// judgeLimit checks that a known limit shows exactly as documented, and no worse.
func judgeLimit(c *Cluster, p Packet, limit string, want Expectation, got Fate, a trace.Answer) string {
	switch limit {
	case localSubset:
		if got != Delivered {
			return fmt.Sprintf("%s (%s), Kubernetes says delivered", got, a.Reason)
		}
		p.Class = Outside // whose mapping it is
		outside := c.Expect(p)
		if backends := backendsOf(a); !slices.Equal(backends, want.Backends) && !slices.Equal(backends, outside.Backends) {
			return fmt.Sprintf("may reach %v, Kubernetes says %v, or %v outside", backends, want.Backends, outside.Backends)
		}
	case unusedPort:
		if got != Rejected {
			return fmt.Sprintf("%s (%s), not rejected", got, a.Reason)
		}
	case notAnswered:
		if got == Delivered {
			return "delivered, Kubernetes says dropped"
		}
	case fromOutside:
		if backends := backendsOf(a); !slices.Equal(backends, want.Backends) {
			return fmt.Sprintf("may reach %v, Kubernetes says %v", backends, want.Backends)
		}
	}
	return ""
}

// externalVIP tells whether an address is an external one of some served Service.
func (c *Cluster) externalVIP(addr netip.Addr) bool {
	for _, svc := range c.Services {
		if !served(svc) {
			continue
		}
		for _, lb := range svc.LoadBalancerIPs {
			if lb.Addr == addr && !lb.Proxy {
				return true
			}
		}
		if slices.Contains(svc.ExternalIPs, addr) {
			return true
		}
	}
	return false
}
