package oracle

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed/show"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
)

// How many cases the random test runs: CONTIV_CASES, or enough for a quick look. CONTIV_SEED repeats one world.
const (
	defaultCases  = 100
	stepsPerWorld = 10
	packetsPer    = 12
)

// arrangement is what serves which families.
type arrangement struct {
	renderer agent.ServiceRenderer
	families Families
}

func (a arrangement) String() string {
	return fmt.Sprintf("%s, %s", a.renderer, map[Families]string{IPv4: "IPv4", IPv6: "IPv6", Dual: "dual-stack"}[a.families])
}

func (a arrangement) config(seed uint64, extras Extras) trace.Config {
	cfg := trace.Config{Seed: seed, Agent: agent.Config{Services: config.Services{Renderer: builtin.Config{Choice: a.renderer}, Config: service.Config{KeepTerminating: extras.KeepTerminating}}}}
	for _, ip := range extras.NodePortsAt {
		cfg.Agent.Services.NodePorts.CIDRs = append(cfg.Agent.Services.NodePorts.CIDRs, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return cfg
}

// cnat reports whether cnat serves an address.
func (a arrangement) cnat(addr netip.Addr) bool {
	return a.renderer == agent.RendererCNAT || a.renderer == agent.RendererAuto && addr.Is6()
}

// TestServicesAgreeWithKubernetes grows random clusters step by step; after each step random packets must have the fate
// that Kubernetes promises, from the whole agent on the simulated VPP: with each renderer, of each family.
func TestServicesAgreeWithKubernetes(t *testing.T) {
	cases := Setting(t, "CONTIV_CASES", pace.Fewer[uint64](defaultCases, 4))
	first := Setting(t, "CONTIV_SEED", 1)
	worlds := (cases + stepsPerWorld - 1) / stepsPerWorld
	for _, a := range []arrangement{
		{agent.RendererNAT44, IPv4}, {agent.RendererCNAT, IPv4}, {agent.RendererAuto, IPv6}, {agent.RendererAuto, Dual}, {agent.RendererCNAT, Dual},
	} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			t.Logf("%d cases: seeds %d to %d, %d steps each, %d packets per step", worlds*stepsPerWorld, first, first+worlds-1, stepsPerWorld, packetsPer)
			asked := 0
			for seed := first; seed < first+worlds; seed++ {
				asked += world(t, a, seed)
				if t.Failed() {
					t.Fatalf("seed %d: repeat with CONTIV_SEED=%d CONTIV_CASES=%d", seed, seed, stepsPerWorld)
				}
			}
			t.Logf("%d packets agreed", asked)
		})
	}
}

// applyTo applies changes to a cluster.
func applyTo(t *testing.T, c *trace.Cluster, put []model.Object, removed []model.Ref) {
	t.Helper()
	var changes []event.Change
	for _, obj := range put {
		changes = append(changes, event.Change{Ref: obj.Ref(), Object: obj})
	}
	for _, ref := range removed {
		changes = append(changes, event.Change{Ref: ref})
	}
	if err := c.Apply(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
}

func world(t *testing.T, a arrangement, seed uint64) (asked int) {
	w := NewWorldWithExtras(seed, a.families)
	c := trace.NewCluster(a.config(seed, w.Extras))
	defer c.Close()
	applyTo(t, c, w.Objects(), nil)
	for step := range stepsPerWorld {
		put, removed := w.Step()
		applyTo(t, c, put, removed)
		cluster := w.Cluster()
		for _, p := range w.Packets(packetsPer) {
			asked++
			if diff := a.compareFates(cluster, p, c.Answer(question(w, p))); diff != "" {
				t.Errorf("seed %d step %d: %v: %s", seed, step, p, diff)
			}
		}
	}
	RestartWritesNothing(t, seed, c)
	a.sameAsFresh(t, seed, w, c)
	return asked
}

// sameAsFresh compares every VPP with that of a cluster that was given the final objects only.
func (a arrangement) sameAsFresh(t *testing.T, seed uint64, w *World, c *trace.Cluster) {
	t.Helper()
	fresh := trace.NewCluster(a.config(seed, w.Extras))
	defer fresh.Close()
	applyTo(t, fresh, w.Objects(), nil)
	for _, name := range c.Nodes() {
		if diff := cmp.Diff(fresh.Sim(name).Dump(), show.WithoutDrained(c.Sim(name).Dump())); diff != "" {
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
			if slices.Contains(pod.IPs, p.Src) {
				q.From = "pod:" + pod.ID.String()
			}
		}
	}
	return q
}

// compareFates returns how the answer differs from Kubernetes' specification, beyond the known limits of the renderers.
func (r arrangement) compareFates(c *Cluster, p Packet, a trace.Answer) string {
	want := c.Expect(p)
	if a.Error != "" {
		return "cannot ask: " + a.Error
	}
	if p.Src == p.Dst.Addr() && p.Class == Pod {
		return "" // such a packet never leaves the pod
	}
	got := Fate(a.Verdict)
	limit := nat44Limit(c, p, want)
	if r.cnat(p.Dst.Addr()) {
		limit = cnatLimit(c, p, want)
	}
	if limit != "" {
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
