package calc_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/selector"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// TestAnyPath makes random changes with flushes in between. It compares the data plane's state with that of a graph
// that saw only the result, and with a literal evaluation of the result.
func TestAnyPath(t *testing.T) {
	for range pace.Fewer(10, 5) {
		anyPath(t)
	}
}

func anyPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := calc.Config{Node: self, NodeResources: chance(t, 80), WorkloadRoutes: chance(t, 30)}
		g, w, m := calc.New(cfg), newWorld(), mirror.New()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step(t, g)
			if chance(t, 5) {
				g.InSync()
			}
			if chance(t, 30) {
				m.Apply(g.Flush(), true)
			}
		}
		g.InSync()
		m.Apply(g.Flush(), true)
		for _, p := range m.Problems {
			t.Error(p)
		}
		fresh, n := calc.New(cfg), mirror.New()
		w.putAll(fresh)
		fresh.InSync()
		stream := fresh.Flush()
		n.Apply(stream, true)
		other := calc.New(cfg)
		w.putAll(other)
		other.InSync()
		if diff := cmp.Diff(stream, other.Flush(), protocmp.Transform()); diff != "" {
			t.Errorf("messages depend on the order of updates:\n%s", diff)
		}
		if diff := cmp.Diff(n.Dump(), m.Dump()); diff != "" {
			t.Errorf("a graph that saw only the result sends another state (-fresh +incremental):\n%s", diff)
		}
		for _, p := range append(w.disagreements(m), w.routeDisagreements(m, cfg)...) {
			t.Error(p)
		}
		w.clear(g)
		m.Apply(g.Flush(), true)
		if left := g.Remaining(); len(left) > 0 {
			t.Errorf("an emptied graph holds %v", left)
		}
		if got, want := m.Dump(), []string{"Config  => ", "Encapsulation  => "}; !slices.Equal(got, want) {
			t.Errorf("an emptied graph leaves %v", got)
		}
	})
}

// clear removes everything.
func (w *world) clear(g *calc.Graph) {
	none(w.policies, g.SetPolicy)
	none(w.workloads, g.SetWorkload)
	none(w.slices, g.SetSlice)
	none(w.hostEPs, g.SetHostEndpoint)
	none(w.blocks, g.SetBlock)
	none(w.netsets, g.SetNetworkSet)
	none(w.tiers, g.SetTier)
	none(w.profiles, g.SetProfile)
	none(w.pools, g.SetPool)
	none(w.hosts, g.SetHost)
	none(w.hostIPs, setHostIP(g))
	none(w.wireguard, g.SetWireguard)
	none(w.params, setParam(g))
}

func none[K comparable, V any](m map[K]*V, set func(K, *V)) {
	for k := range m {
		set(k, nil)
	}
}

// thing is anything with labels and addresses.
type thing struct {
	labels map[string]string
	nets   []netip.Prefix
	ports  []model.NamedPort
}

func (w *world) labelled() (out []thing) {
	for _, e := range w.workloads {
		out = append(out, thing{w.inherited(e.Labels, e.Profiles), e.Nets, e.Ports})
	}
	for _, e := range w.hostEPs {
		var nets []netip.Prefix
		for _, a := range e.Addrs {
			nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
		}
		out = append(out, thing{w.inherited(e.Labels, e.Profiles), nets, e.Ports})
	}
	for _, s := range w.netsets {
		out = append(out, thing{w.inherited(s.Labels, s.Profiles), s.Nets, nil})
	}
	return out
}

func matches(text string, labels map[string]string) bool {
	sel, err := selector.Parse(text)
	if err != nil {
		panic(err)
	}
	return sel.Matches(selector.Map(labels))
}

// members evaluates literally what a selector and its negation select: networks, or a named port's addresses.
func (w *world) members(positive, negative, port string, proto model.Protocol) []string {
	set := map[string]bool{}
	for _, th := range w.labelled() {
		if positive != "" && !matches(positive, th.labels) || negative != "" && matches(negative, th.labels) {
			continue
		}
		for _, n := range th.nets {
			switch {
			case port != "":
				for _, p := range th.ports {
					if p.Name == port && p.Protocol == proto {
						set[fmt.Sprintf("%s,%s:%d", n.Addr(), strings.ToLower(proto.String()), p.Port)] = true
					}
				}
			case n.Bits() == 0 && n.Addr().Is4():
				set["0.0.0.0/1"], set["128.0.0.0/1"] = true, true
			case n.Bits() == 0:
				set["::/1"], set["8000::/1"] = true, true
			default:
				set[n.String()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func (w *world) serviceMembers(svc model.ServiceID, withPorts bool) []string {
	set := map[string]bool{}
	for _, s := range w.slices {
		if s.Service != svc {
			continue
		}
		for _, e := range s.Endpoints {
			if !withPorts {
				set[netip.PrefixFrom(e.Addr, e.Addr.BitLen()).String()] = true
				continue
			}
			for _, p := range s.Ports {
				set[fmt.Sprintf("%s,%s:%d", e.Addr, strings.ToLower(p.Protocol.String()), p.Port)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// disagreements compares the data plane with a literal evaluation of the world.
func (w *world) disagreements(m *mirror.Mirror) (out []string) {
	policies, profiles, endpoints := map[string]bool{}, map[string]bool{}, 0
	for _, p := range w.policies {
		if p.Everywhere {
			policies[p.Tier+" "+p.FelixName()] = true
		}
	}
	local := func(labels map[string]string, own []string) (list []*model.Policy) {
		endpoints++
		for _, name := range own {
			profiles[name] = true
		}
		for _, p := range w.policies {
			if matches(p.Selector, w.inherited(labels, own)) {
				policies[p.Tier+" "+p.FelixName()] = true
				list = append(list, p)
			}
		}
		slices.SortFunc(list, w.before)
		return list
	}
	for _, v := range m.Things {
		switch v := v.(type) {
		case *felix.WorkloadEndpointUpdate:
			endpoints--
			e := w.workloads[model.WorkloadID{Node: self, Orchestrator: v.Id.OrchestratorId, Workload: v.Id.WorkloadId, Endpoint: v.Id.EndpointId}]
			want := w.tierLines(local(e.Labels, e.Profiles), "normal")
			out = append(out, compare(e.ID.String(), want, lines(v.Endpoint.Tiers))...)
		case *felix.HostEndpointUpdate:
			endpoints--
			e := w.hostEPs[model.HostEndpointID{Node: self, Name: v.Id.EndpointId}]
			list := local(e.Labels, e.Profiles)
			for what, tiers := range map[string][]*felix.TierInfo{
				"normal": v.Endpoint.Tiers, "untracked": v.Endpoint.UntrackedTiers, "preDNAT": v.Endpoint.PreDnatTiers,
				"forward": v.Endpoint.ForwardTiers,
			} {
				out = append(out, compare(e.ID.String()+" "+what, w.tierLines(list, what), lines(tiers))...)
			}
		}
	}
	for id := range w.workloads {
		if id.Node == self && m.Things[`WorkloadEndpoint `+idText(id)] == nil {
			out = append(out, id.String()+" is missing")
		}
	}
	for _, v := range m.Things {
		switch v := v.(type) {
		case *felix.ActivePolicyUpdate:
			key := v.Id.Tier + " " + v.Id.Name
			if !policies[key] {
				out = append(out, key+" applies to no endpoint")
			}
			delete(policies, key)
			for _, p := range w.policies {
				if p.Tier == v.Id.Tier && p.FelixName() == v.Id.Name {
					out = append(out, w.compareRules(m, key+" in", p.InboundRules, v.Policy.InboundRules)...)
					out = append(out, w.compareRules(m, key+" out", p.OutboundRules, v.Policy.OutboundRules)...)
				}
			}
		case *felix.ActiveProfileUpdate:
			if !profiles[v.Id.Name] {
				out = append(out, v.Id.Name+" is used by no endpoint")
			}
			delete(profiles, v.Id.Name)
			if p := w.profiles[v.Id.Name]; p != nil && p.Rules != nil {
				out = append(out, w.compareRules(m, v.Id.Name+" in", p.Rules.Inbound, v.Profile.InboundRules)...)
			} else if r := v.Profile.InboundRules; len(r) != 1 || r[0].Action != "deny" {
				out = append(out, v.Id.Name+" has no rules and does not deny")
			}
		}
	}
	for key := range policies {
		out = append(out, key+" is missing")
	}
	for key := range profiles {
		out = append(out, key+" is missing")
	}
	return out
}

func idText(id model.WorkloadID) string {
	return mirror.Text(&felix.WorkloadEndpointID{
		OrchestratorId: id.Orchestrator, WorkloadId: id.Workload, EndpointId: id.Endpoint,
	})
}

func compare(what string, want, got []string) []string {
	if diff := cmp.Diff(want, got); diff != "" {
		return []string{what + " (-literal +calc):\n" + diff}
	}
	return nil
}

// before is the order of policies, written out.
func (w *world) before(a, b *model.Policy) int {
	key := func(p *model.Policy) string {
		text := func(o model.Order) string {
			if !o.Set {
				return "zzz"
			}
			return fmt.Sprintf("%03.0f", o.Value)
		}
		tier := "2 "
		if t := w.tiers[p.Tier]; t != nil {
			tier = "1 " + text(t.Order)
		}
		return tier + " " + p.Tier + " " + text(p.Order) + " " + p.FelixName()
	}
	return strings.Compare(key(a), key(b))
}

// tierLines are the policies of one stage, "tier/in/policy" and "tier/out/policy", in order.
func (w *world) tierLines(list []*model.Policy, place string) []string {
	infos := []*felix.TierInfo{}
	for _, p := range list {
		here := "normal"
		if p.Untracked {
			here = "untracked"
		} else if p.PreDNAT {
			here = "preDNAT"
		}
		if here != place && (place != "forward" || here != "normal" || !p.ApplyOnForward) {
			continue
		}
		action := "Pass"
		if here == "normal" {
			action = ""
			if t := w.tiers[p.Tier]; t != nil {
				action = string(t.DefaultAction)
			}
		}
		info := &felix.TierInfo{Name: p.Tier, DefaultAction: action}
		if p.Ingress || !p.Egress {
			info.IngressPolicies = []string{p.FelixName()}
		}
		if (p.Egress || !p.Ingress) && here != "preDNAT" {
			info.EgressPolicies = []string{p.FelixName()}
		}
		infos = append(infos, info)
	}
	return lines(infos)
}

func lines(tiers []*felix.TierInfo) (in []string) {
	var out []string
	for _, t := range tiers {
		for _, p := range t.IngressPolicies {
			in = append(in, t.Name+" "+t.DefaultAction+" in "+p)
		}
		for _, p := range t.EgressPolicies {
			out = append(out, t.Name+" "+t.DefaultAction+" out "+p)
		}
	}
	return append(in, out...)
}

// compareRules checks that the sets a rule names hold what its selectors match.
func (w *world) compareRules(m *mirror.Mirror, what string, want []model.Rule, got []*felix.Rule) (out []string) {
	if len(want) != len(got) {
		return []string{fmt.Sprintf("%s: %d rules, want %d", what, len(got), len(want))}
	}
	for i := range want {
		r, f := &want[i], got[i]
		proto := model.TCP
		if r.Protocol.Name == "udp" || r.Protocol.Number == 17 {
			proto = model.UDP
		}
		at := fmt.Sprintf("%s rule %d", what, i)
		out = append(out, w.comparePeer(m, at+" source", &r.Source, proto, f.SrcIpSetIds, f.NotSrcIpSetIds,
			f.SrcNamedPortIpSetIds, f.NotSrcNamedPortIpSetIds, f.SrcPorts, nil)...)
		out = append(out, w.comparePeer(m, at+" destination", &r.Destination, proto, f.DstIpSetIds, f.NotDstIpSetIds,
			f.DstNamedPortIpSetIds, f.NotDstNamedPortIpSetIds, f.DstPorts, f.DstIpPortSetIds)...)
	}
	return out
}

func (w *world) comparePeer(m *mirror.Mirror, what string, p *model.Peer, proto model.Protocol, sets, notSets, named, notNamed []string,
	ranges []*felix.PortRange, ipPorts []string,
) (out []string) {
	one := func(name string, ids *[]string, want []string) {
		if len(*ids) == 0 {
			out = append(out, what+" lacks its set of "+name)
			return
		}
		have := slices.Sorted(maps.Keys(m.Sets[(*ids)[0]]))
		out = append(out, compare(what+" "+name, want, have)...)
		*ids = (*ids)[1:]
	}
	names, numbers := 0, 0
	for _, port := range p.Ports {
		if port.Name == "" {
			numbers++
			continue
		}
		names++
		negative := p.NotSelector
		if p.Selector == "" {
			negative = "" // then it is a separate set
		}
		one("port "+port.Name, &named, w.members(p.Selector, negative, port.Name, proto))
	}
	if len(ranges) != numbers {
		out = append(out, what+" has other numeric ports")
	}
	if p.Selector != "" && (names == 0 || numbers > 0) {
		one("selector", &sets, w.members(p.Selector, p.NotSelector, "", 0))
	}
	if p.Selector == "" && p.NotSelector != "" {
		one("negated selector", &notSets, w.members(p.NotSelector, "", "", 0))
	}
	for _, port := range p.NotPorts {
		if port.Name != "" {
			negative := p.NotSelector
			if p.Selector == "" {
				negative = ""
			}
			one("negated port "+port.Name, &notNamed, w.members(p.Selector, negative, port.Name, proto))
		}
	}
	if p.Service.Name != "" && strings.HasSuffix(what, "source") {
		one("service", &sets, w.serviceMembers(p.Service, false))
	} else if p.Service.Name != "" {
		one("service", &ipPorts, w.serviceMembers(p.Service, true))
	}
	if n := len(sets) + len(notSets) + len(named) + len(notNamed) + len(ipPorts); n > 0 {
		out = append(out, fmt.Sprintf("%s names %d sets too many", what, n))
	}
	return out
}
