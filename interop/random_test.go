package interop

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// world makes random changes to a small cluster, small so that things meet.
type world struct {
	*rand.Rand
	policies  map[model.PolicyID]*model.Policy
	hostNames []string
	hadBGP    bool
}

func newWorld(seed uint64) *world {
	return &world{
		Rand: rand.New(rand.NewPCG(seed, 1)), policies: map[model.PolicyID]*model.Policy{},
		hostNames: []string{node, "other", "third"},
	}
}

func (w *world) chance(percent int) bool { return w.IntN(100) < percent }

func one[T any](w *world, list ...T) T { return list[w.IntN(len(list))] }

func several[T any](w *world, most int, make func() T) (out []T) {
	for range w.IntN(most + 1) {
		out = append(out, make())
	}
	return out
}

func (w *world) named(prefix string, n int) string { return fmt.Sprint(prefix, w.IntN(n)) }

var keys = []string{"app", "env", "role", "pcns.team", "pcsa.account", "projectcalico.org/namespace"}

func (w *world) labels() map[string]string {
	out := map[string]string{}
	if w.chance(40) { // many things look alike
		out["app"] = w.named("v", 2)
		return out
	}
	for range w.IntN(4) {
		out[one(w, keys...)] = w.named("v", 3)
	}
	return out
}

func (w *world) selector(depth int) string {
	if depth > 0 && w.chance(50) {
		a, b := w.selector(depth-1), w.selector(depth-1)
		return one(w, "("+a+") && ("+b+")", "("+a+") || ("+b+")", a+" && "+b, a+" || "+b, "!("+a+")", a)
	}
	k, v := one(w, keys...), w.named("v", 3)
	return one(w, k+" == '"+v+"'", k+" == \""+v+"\"", k+" != '"+v+"'", "has("+k+")", "!has("+k+")", k+" in {'"+v+"', 'v1'}",
		k+" not in {'v2','"+v+"'}", k+" contains '1'", k+" starts with 'v'", k+" ends with '2'", "all()", "global()")
}

func (w *world) addr() netip.Addr {
	if w.chance(30) {
		return netip.MustParseAddr(fmt.Sprint("fd00::", w.IntN(5)+1))
	}
	return netip.AddrFrom4([4]byte{10, 65, byte(w.IntN(2)), byte(w.IntN(6))})
}

func (w *world) hostNet() netip.Prefix {
	a := w.addr()
	return netip.PrefixFrom(a, a.BitLen())
}

func (w *world) net() netip.Prefix {
	a := w.addr()
	return netip.PrefixFrom(a, one(w, a.BitLen(), a.BitLen()-1, a.BitLen()-3, a.BitLen()-8, 1, 0)).Masked()
}

func (w *world) namedPort() model.NamedPort {
	return model.NamedPort{
		Name: one(w, "http", "dns"), Protocol: one(w, model.TCP, model.UDP, model.SCTP), Port: uint16(80 + w.IntN(2)),
	}
}

func (w *world) profiles() []string {
	if w.chance(40) {
		return []string{"kns.ns0"}
	}
	list := []string{"kns.ns0", "kns.ns1", "ksa.ns0.web", "plain"}
	w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:w.IntN(4)]
}

func (w *world) portMatch() model.PortMatch {
	if w.chance(40) {
		return model.PortMatch{Name: one(w, "http", "dns")}
	}
	first := uint16(w.IntN(100) + 1)
	return model.PortMatch{First: first, Last: first + uint16(w.IntN(3))}
}

func (w *world) peer() (p model.Peer) {
	if w.chance(60) {
		p.Selector = w.selector(2)
		p.OriginalSelector = one(w, "", p.Selector)
	}
	if w.chance(20) {
		p.NotSelector = w.selector(1)
		p.OriginalNotSelector = one(w, "", p.NotSelector)
	}
	if w.chance(20) {
		p.OriginalNamespaceSelector = one(w, "global()", "all()")
		p.ServiceAccountNames = several(w, 2, func() string { return w.named("sa", 3) })
		p.ServiceAccountSelector = one(w, "", "role == 'x'")
	}
	if w.chance(20) {
		p.Nets = several(w, 2, w.net)
	}
	if w.chance(20) {
		p.NotNets = several(w, 2, w.net)
	}
	if w.chance(30) {
		p.Ports = several(w, 3, w.portMatch)
	}
	if w.chance(20) {
		p.NotPorts = several(w, 2, w.portMatch)
	}
	if w.chance(10) {
		p.Service = model.ServiceID{Namespace: "ns0", Name: w.named("svc", 2)}
	}
	return p
}

func (w *world) icmp() *model.ICMPMatch {
	if w.chance(85) {
		return nil
	}
	m := &model.ICMPMatch{Type: uint8(w.IntN(10)), HasCode: w.chance(50)}
	if m.HasCode {
		m.Code = uint8(w.IntN(4))
	}
	return m
}

func (w *world) rule() model.Rule {
	protocols := []model.RuleProtocol{
		{}, {Name: "tcp"}, {Name: "udp"}, {Name: "sctp"}, {Name: "icmp"}, {Name: "icmpv6"}, {Number: 6}, {Number: 17}, {Number: 132}, {Number: 47},
	}
	r := model.Rule{
		Action:    one(w, model.ActionAllow, model.ActionDeny, model.ActionPass, model.ActionLog, ""),
		IPVersion: one[uint8](w, 0, 0, 4, 6), Protocol: one(w, protocols...),
		ICMP: w.icmp(), NotICMP: w.icmp(), Source: w.peer(), Destination: w.peer(),
	}
	if w.chance(10) {
		r.NotProtocol = one(w, protocols...)
	}
	if w.chance(5) {
		r.HTTP = &model.HTTPMatch{Methods: []string{"GET"}, Paths: []model.HTTPPath{{Exact: "/a"}, {Prefix: "/b"}}}
	}
	if w.chance(10) {
		r.Annotations = map[string]string{"why": w.named("v", 3)}
	}
	return r
}

func (w *world) order() model.Order {
	if w.chance(25) {
		return model.Order{}
	}
	return model.OrderOf(float64(w.IntN(4)))
}

func (w *world) policy() Change {
	id := model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: w.named("gnp", 4)}
	if w.chance(60) {
		id = model.PolicyID{
			Kind:      one(w, model.KindNetworkPolicy, model.KindCalicoNetworkPolicy, model.KindStagedNetworkPolicy),
			Namespace: "v1", Name: w.named("np", 3),
		}
	}
	old := w.policies[id]
	if w.chance(25) {
		delete(w.policies, id)
		return Policy(id, old, nil)
	}
	p := &model.Policy{
		ID: id, Tier: w.named("tier", 3), Order: w.order(), Namespace: id.Namespace, Selector: w.selector(2),
		Ingress: w.chance(50), Egress: w.chance(50), InboundRules: several(w, 3, w.rule), OutboundRules: several(w, 2, w.rule),
		Untracked: w.chance(10), PreDNAT: w.chance(10), ApplyOnForward: w.chance(30), Everywhere: w.chance(5),
	}
	if old != nil && w.chance(40) { // a change of one field
		c := *old
		switch w.IntN(6) {
		case 0:
			c.Order = p.Order
		case 1:
			c.Tier = p.Tier
		case 2:
			c.Selector = p.Selector
		case 3:
			c.InboundRules = p.InboundRules
		case 4:
			c.ApplyOnForward = !c.ApplyOnForward
		case 5:
			c.Ingress = !c.Ingress
		}
		p = &c
	}
	w.policies[id] = p
	return Policy(id, old, p)
}

func orNil[T any](gone bool, v *T) *T {
	if gone {
		return nil
	}
	return v
}

func (w *world) workload() Change {
	id := model.WorkloadID{
		Node: one(w, node, node, "other"), Orchestrator: "k8s", Workload: w.named("v1/pod-", 5), Endpoint: "eth0",
	}
	e := &model.WorkloadEndpoint{
		ID: id, State: one(w, "active", "active", "inactive"), Interface: w.named("cali", 9), Profiles: w.profiles(),
		Nets: several(w, 2, w.hostNet), Labels: w.labels(), Ports: several(w, 2, w.namedPort),
		MAC: one(w, "", "ee:ee:ee:ee:ee:01"),
	}
	slices.SortStableFunc(e.Nets, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	if w.chance(10) {
		e.Annotations = map[string]string{"a": "b"}
		e.AllowSpoofedSources = several(w, 2, w.net)
		internal := w.addr()
		e.NAT = []model.AddressPair{{External: internal.Next(), Internal: internal}}
	}
	e.QoS = w.qos()
	if w.chance(5) {
		e.Labels["kubevirt.io"] = one(w, "virt-launcher", "other")
	}
	return Workload(id, orNil(w.chance(25), e))
}

func (w *world) hostEndpoint() Change {
	id := model.HostEndpointID{Node: one(w, node, "other"), Name: w.named("eth", 2)}
	h := &model.HostEndpoint{
		ID: id, Interface: one(w, "", "*", id.Name), Addrs: several(w, 2, w.addr), Profiles: w.profiles(), Labels: w.labels(),
		Ports: several(w, 1, w.namedPort), QoS: w.qos(),
	}
	return HostEndpoint(id, orNil(w.chance(25), h))
}

func (w *world) networkSet() Change {
	name := one(w, "global", "v1/set", "v1/other")
	n := &model.NetworkSet{Name: name, Nets: several(w, 4, w.net), Labels: w.labels(), Profiles: w.profiles()}
	return NetworkSet(name, orNil(w.chance(25), n))
}

func (w *world) profile() Change {
	name := one(w, "kns.ns0", "kns.ns1", "ksa.ns0.web", "plain")
	p := &model.Profile{Name: name, Labels: w.labels()}
	if w.chance(70) {
		p.Rules = &model.ProfileRules{Inbound: several(w, 2, w.rule), Outbound: several(w, 1, w.rule)}
	}
	return Profile(name, orNil(w.chance(25), p))
}

func (w *world) slice() Change {
	n := w.IntN(3) // a slice belongs to one service for good: Felix forgets its members if that changes
	id := model.SliceID{Namespace: "ns0", Name: fmt.Sprint("slice", n)}
	s := &model.EndpointSlice{
		ID: id, Service: model.ServiceID{Namespace: "ns0", Name: fmt.Sprint("svc", n%2)},
		Ports: several(w, 2, func() model.EndpointPort { return model.EndpointPort(w.namedPort()) }),
	}
	if len(s.Ports) == 2 && s.Ports[0].Name == s.Ports[1].Name {
		s.Ports = s.Ports[:1]
	}
	v6 := n == 2 // a slice has one family
	for _, a := range several(w, 5, w.addr) {
		if a.Is6() == v6 {
			s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: a})
		}
	}
	return Slice(id, orNil(w.chance(25), s))
}

// change makes one random change of anything.
func (w *world) change() Change {
	switch w.IntN(20) {
	case 0, 1, 2, 3:
		return w.workload()
	case 4:
		return w.hostEndpoint()
	case 5, 6:
		return w.networkSet()
	case 7, 8, 9, 10:
		return w.policy()
	case 11:
		name := w.named("tier", 3)
		// A tier with policies cannot be deleted in Calico, and Felix would keep its default action.
		used := slices.ContainsFunc(slices.Collect(maps.Values(w.policies)), func(p *model.Policy) bool { return p.Tier == name })
		t := &model.Tier{Name: name, Order: w.order(), DefaultAction: one(w, "", model.TierPass, model.TierDeny)}
		return Tier(name, orNil(w.chance(25) && !used, t))
	case 12, 13:
		return w.profile()
	case 14, 15:
		return w.slice()
	}
	return w.route()
}

func (w *world) route() Change {
	host := one(w, w.hostNames...)
	gone := w.chance(20)
	switch w.IntN(8) {
	case 6:
		return w.service()
	case 7:
		return w.bgp()
	case 0:
		cidr := netip.MustParsePrefix(one(w, "10.65.0.0/16", "10.65.1.0/24", "fd00::/64"))
		modes := []string{"", "always", "cross-subnet"}
		p := &model.Pool{CIDR: cidr, Masquerade: w.chance(50), IPIPMode: one(w, modes...)}
		if p.IPIPMode == "" {
			p.VXLANMode = one(w, modes...)
		}
		return Pool(cidr, orNil(gone, p))
	case 1:
		cidr := netip.MustParsePrefix(one(w, "10.65.0.0/29", "10.65.1.0/29", "fd00::/125"))
		b := &model.Block{CIDR: cidr, Node: one(w, append(w.hostNames, "")...)}
		a := cidr.Addr()
		for range 4 {
			if n := one(w, w.hostNames...); w.chance(30) && n != b.Node {
				b.Borrowed = append(b.Borrowed, model.BorrowedAddr{Addr: a, Node: n})
			}
			a = a.Next()
		}
		return Block(cidr, orNil(gone, b))
	case 2:
		if gone {
			return HostIP(host, netip.Addr{})
		}
		return HostIP(host, netip.AddrFrom4([4]byte{192, 168, byte(w.IntN(2)), byte(slices.Index(w.hostNames, host) + 1)}))
	case 3:
		return Host(host, orNil(gone, w.host(slices.Index(w.hostNames, host))))
	case 4:
		wg := &model.Wireguard{PublicKey: one(w, "", "key"), PublicKeyV6: one(w, "", "key6")}
		if w.chance(50) {
			wg.IPv4, wg.IPv6 = netip.MustParseAddr("10.65.1.9"), netip.MustParseAddr("fd00::9")
		}
		return Wireguard(host, orNil(gone, wg))
	}
	name := one(w, "LogSeverityScreen", "InterfacePrefix", "Other")
	return Config(one(w, "", node, "other"), name, one(w, "", "x", "y"))
}

func (w *world) host(n int) *model.Host {
	h := &model.Host{Name: w.hostNames[n], Labels: w.labels(), ASNumber: one(w, "", "64512")}
	if len(h.Labels) == 0 {
		h.Labels = maps.Clone(h.Labels)
	}
	if w.chance(80) {
		h.IPv4 = netip.AddrFrom4([4]byte{192, 168, byte(w.IntN(2)), byte(n + 1)})
		h.Net4 = netip.PrefixFrom(h.IPv4, one(w, 16, 24, 32))
	}
	if w.chance(40) {
		h.IPv6 = netip.MustParseAddr(fmt.Sprint("fd01::", n+1))
		h.Net6 = netip.PrefixFrom(h.IPv6, 64)
	}
	if w.chance(40) {
		h.VXLAN4 = netip.AddrFrom4([4]byte{10, 65, 0, byte(w.IntN(4))})
	}
	if w.chance(20) {
		h.IPIP = netip.AddrFrom4([4]byte{10, 65, 1, byte(w.IntN(4))})
	}
	return h
}

func (w *world) qos() *model.QoS {
	if w.chance(85) {
		return nil
	}
	q := &model.QoS{DSCP: uint8(w.IntN(64)), HasDSCP: w.chance(50)}
	for _, r := range []*model.RateLimits{&q.Ingress, &q.Egress} {
		for _, v := range []*int64{&r.Bandwidth, &r.Burst, &r.PeakRate, &r.MinBurst, &r.PacketRate, &r.PacketBurst, &r.MaxConnections} {
			if w.chance(20) {
				*v = int64(w.IntN(100)) + 1
			}
		}
	}
	return q
}

func (w *world) service() Change {
	id := model.ServiceID{Namespace: "ns0", Name: w.named("svc", 2)}
	s := &model.Service{ID: id, Type: model.ServiceType(w.IntN(4)), ExternalIPs: several(w, 2, w.addr)}
	slices.SortFunc(s.ExternalIPs, netip.Addr.Compare)
	s.ExternalIPs = slices.Compact(s.ExternalIPs)
	if s.Type != model.ExternalName {
		s.ClusterIPs = several(w, 1, w.addr)
	}
	s.Headless = s.Type == model.ClusterIP && w.chance(20)
	if s.Type == model.LoadBalancer {
		s.LoadBalancerIPs = several(w, 1, func() model.LoadBalancerIP { return model.LoadBalancerIP{Addr: w.addr()} })
	}
	for i := range 1 + w.IntN(2) {
		p := model.ServicePort{Name: fmt.Sprint("p", i), Protocol: one(w, model.TCP, model.UDP, model.SCTP), Port: uint16(80 + i)}
		if s.Type == model.NodePort || s.Type == model.LoadBalancer {
			p.NodePort = uint16(30000 + w.IntN(3)*2 + i)
		}
		s.Ports = append(s.Ports, p)
	}
	return Service(id, orNil(w.chance(30), s))
}

func (w *world) bgp() Change {
	c := &model.BGPConfig{
		ServiceClusterIPs: several(w, 2, w.net), ServiceExternalIPs: several(w, 2, w.net), ServiceLoadBalancerIPs: several(w, 2, w.net),
	}
	if w.chance(50) {
		c.WorkloadPeering4, c.WorkloadPeering6 = netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")
	}
	gone := w.chance(30) && w.hadBGP // Felix reports a deletion even if it never had one
	w.hadBGP = true
	return BGPConfig(orNil(gone, c))
}
