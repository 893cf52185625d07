package verified

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// served is an arrangement of renderers and families.
type served struct {
	renderer agent.ServiceRenderer
	families oracle.Families
}

func (a served) String() string {
	return string(a.renderer) + map[oracle.Families]string{oracle.IPv4: " IPv4", oracle.IPv6: " IPv6", oracle.Dual: " dual-stack"}[a.families]
}

func arrangements() []served {
	return []served{
		{agent.RendererNAT44, oracle.IPv4},
		{agent.RendererCNAT, oracle.IPv4},
		{agent.RendererAuto, oracle.IPv6},
		{agent.RendererAuto, oracle.Dual},
		{agent.RendererCNAT, oracle.Dual},
	}
}

// configs are the configuration of a world's agents, for them and for verify.
func (a served) configs(seed uint64, w *oracle.World) (trace.Config, serving.Config) {
	weight := 1 + seed%3
	built := builtin.Config{Choice: a.renderer}
	built.NAT44.LocalEndpointWeight, built.CNAT.LocalEndpointWeight = uint8(weight), uint8(weight)
	cfg := trace.Config{Seed: seed, Agent: agent.Config{Services: config.Services{Renderer: built, Config: service.Config{KeepTerminating: w.KeepTerminating}}}}
	says := serving.Config{Renderer: string(a.renderer), KeepTerminating: w.KeepTerminating, LocalWeight: int(weight)}
	for _, ip := range w.NodePortsAt {
		says.NodePorts = append(says.NodePorts, netip.PrefixFrom(ip, ip.BitLen()))
	}
	cfg.Agent.Services.NodePorts.CIDRs = says.NodePorts
	return cfg, says
}

// grown is a random cluster with Services that has changed some times.
func grown(t *testing.T, a served, seed uint64, steps int) (*trace.Cluster, *oracle.World, serving.Config) {
	t.Helper()
	w := oracle.NewWorldWithExtras(seed, a.families)
	cfg, says := a.configs(seed, w)
	c := trace.NewCluster(cfg)
	t.Cleanup(c.Close)
	apply := func(put []model.Object, removed []model.Ref) {
		var changes []event.Change
		for _, o := range put {
			changes = append(changes, event.Change{Ref: o.Ref(), Object: o})
		}
		for _, ref := range removed {
			changes = append(changes, event.Change{Ref: ref})
		}
		if err := c.Apply(context.Background(), changes); err != nil {
			t.Fatal(err)
		}
	}
	apply(w.Objects(), nil)
	for range steps {
		apply(w.Step())
	}
	return c, w, says
}

// TestEveryServiceIsEqual grows random clusters with Services: VPP translates what they mean, with each renderer, in each family.
func TestEveryServiceIsEqual(t *testing.T) {
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for _, a := range arrangements() {
		t.Run(a.String(), func(t *testing.T) {
			verdicts, frontends, packets := map[verify.Verdict]int{}, 0, 0
			for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](20, 4)); seed++ {
				c, w, says := grown(t, a, seed, 10)
				for _, name := range c.Nodes() {
					r, err := verify.Run(context.Background(), verify.Config{Dial: c.Sim(name).Dial, Node: name, Timeout: time.Minute, Services: says}, w.Objects())
					if err != nil {
						t.Fatal(err)
					}
					for _, k := range r.Services {
						verdicts[k.Verdict]++
						frontends += k.Frontends
						for _, d := range k.Differences {
							t.Errorf("seed %d, %s, %s: %+v", seed, name, k.Of, d)
						}
						if why := strings.Join(k.Why, "; "); k.Verdict == verify.Unknown && !strings.Contains(why, "loadBalancerSourceRanges") {
							t.Errorf("seed %d, %s, %s: not compared: %s", seed, name, k.Of, why)
						}
					}
				}
				c.Close()
				packets += servingAgrees(t, seed, w, says)
				if t.Failed() {
					t.Fatalf("repeat with CONTIV_SEED=%d CONTIV_CASES=1", seed)
				}
			}
			t.Logf("%v, %d frontends, %d packets", verdicts, frontends, packets)
			if verdicts[verify.Equal] < 10*verdicts[verify.Unknown] || frontends == 0 || packets == 0 {
				t.Errorf("too little was compared: %v, %d frontends, %d packets", verdicts, frontends, packets)
			}
		})
	}
}

// servingAgrees compares the frontends of the package serving with test/oracle, for packets to one cluster.
func servingAgrees(t *testing.T, seed uint64, w *oracle.World, says serving.Config) (packets int) {
	t.Helper()
	nodes := map[string]*serving.Node{}
	for _, n := range w.Nodes {
		nodes[n.Name] = serving.Read(n.Name, says, w.Objects())
	}
	law := w.Cluster()
	for _, p := range w.Packets(60) {
		p.Class = oracle.Outside // policy Local makes no difference between clients in VPP
		want := law.Expect(p)
		at := serving.At{Addr: p.Dst.Addr(), Port: p.Dst.Port(), Protocol: p.Proto}
		var f *serving.Frontend
		for _, g := range nodes[p.Node].Frontends {
			if g.At == at {
				f = g
			}
		}
		why := ""
		switch {
		case f == nil && want.Service.Name != "" && want.Fate != oracle.Rejected && !ofAnotherNode(w, p):
			why = "no frontend"
		case f == nil || f.Refused != "" || want.Why == "outside the source ranges":
			continue
		case want.Service != f.Service:
			why = "frontend of " + f.Service.String()
		case want.External && want.Policy == model.PolicyLocal && want.Fate == oracle.Dropped:
			continue // VPP has one mapping for clients outside and in the cluster
		case string(f.Fate) != map[oracle.Fate]string{oracle.Delivered: "balanced", oracle.Rejected: "rejected", oracle.Dropped: "dropped"}[want.Fate]:
			why = string(f.Fate)
		default:
			var got []netip.AddrPort
			for _, b := range f.Backends {
				got = append(got, b.At)
			}
			if want.Fate == oracle.Delivered && !slices.Equal(got, want.Backends) {
				why = fmt.Sprint(got)
			}
		}
		packets++
		if why != "" {
			t.Errorf("seed %d: %v: %s, and test/oracle says %+v", seed, p, why, want)
		}
	}
	return packets
}

// ofAnotherNode: the other node translates packets to its addresses.
func ofAnotherNode(w *oracle.World, p oracle.Packet) bool {
	return slices.ContainsFunc(w.Nodes, func(n *model.Node) bool { return n.Name != p.Node && slices.Contains(n.Addrs(), p.Dst.Addr()) })
}
