package calc_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
)

const self = "n1"

// world is the present state of everything a graph can receive.
type world struct {
	workloads map[model.WorkloadID]*model.WorkloadEndpoint
	hostEPs   map[model.HostEndpointID]*model.HostEndpoint
	netsets   map[string]*model.NetworkSet
	policies  map[model.PolicyID]*model.Policy
	tiers     map[string]*model.Tier
	profiles  map[string]*model.Profile
	slices    map[model.SliceID]*model.EndpointSlice
	pools     map[string]*model.Pool
	blocks    map[netip.Prefix]*model.Block
	hosts     map[string]*model.Host
	hostIPs   map[string]*netip.Addr
	wireguard map[string]*model.Wireguard
	params    map[param]*string
}

// param is a parameter of Felix's configuration; node "" means all nodes.
type param struct{ node, name string }

func newWorld() *world {
	return &world{
		map[model.WorkloadID]*model.WorkloadEndpoint{},
		map[model.HostEndpointID]*model.HostEndpoint{},
		map[string]*model.NetworkSet{},
		map[model.PolicyID]*model.Policy{},
		map[string]*model.Tier{},
		map[string]*model.Profile{},
		map[model.SliceID]*model.EndpointSlice{},
		map[string]*model.Pool{},
		map[netip.Prefix]*model.Block{},
		map[string]*model.Host{},
		map[string]*netip.Addr{},
		map[string]*model.Wireguard{},
		map[param]*string{},
	}
}

// putAll puts the whole world into a graph, in the random order of Go's maps.
func (w *world) putAll(g *calc.Graph) {
	all(w.policies, g.SetPolicy)
	all(w.workloads, g.SetWorkload)
	all(w.slices, g.SetSlice)
	all(w.hostEPs, g.SetHostEndpoint)
	all(w.blocks, g.SetBlock)
	all(w.netsets, g.SetNetworkSet)
	all(w.tiers, g.SetTier)
	all(w.profiles, g.SetProfile)
	all(w.pools, g.SetPool)
	all(w.hosts, g.SetHost)
	all(w.hostIPs, setHostIP(g))
	all(w.wireguard, g.SetWireguard)
	all(w.params, setParam(g))
}

func setHostIP(g *calc.Graph) func(string, *netip.Addr) {
	return func(node string, a *netip.Addr) {
		if a == nil {
			a = &netip.Addr{}
		}
		g.SetHostIP(node, *a)
	}
}

func setParam(g *calc.Graph) func(param, *string) {
	return func(p param, value *string) {
		if value == nil {
			value = new(string)
		}
		if p.node == "" {
			g.SetConfig(p.name, *value)
		} else {
			g.SetHostConfig(p.node, p.name, *value)
		}
	}
}

func all[K comparable, V any](m map[K]*V, set func(K, *V)) {
	for k, v := range m {
		set(k, v)
	}
}

// put changes one object in the world and in the graph; nil removes it.
func put[K comparable, V any](m map[K]*V, set func(K, *V), k K, v *V) {
	if v == nil {
		delete(m, k)
	} else {
		m[k] = v
	}
	set(k, v)
}

func pick[T any](t *rapid.T, list []T) T {
	return list[rapid.IntRange(0, len(list)-1).Draw(t, "pick")]
}

func chance(t *rapid.T, percent int) bool { return rapid.IntRange(0, 99).Draw(t, "chance") < percent }

func some[T any](t *rapid.T, most int, one func(*rapid.T) T) []T {
	var out []T
	for range rapid.IntRange(0, most).Draw(t, "some") {
		out = append(out, one(t))
	}
	return out
}

func name(prefix string, n int) func(*rapid.T) string {
	return func(t *rapid.T) string { return fmt.Sprint(prefix, rapid.IntRange(1, n).Draw(t, prefix)) }
}

func labels(t *rapid.T) map[string]string {
	m := map[string]string{}
	for range rapid.IntRange(0, 3).Draw(t, "labels") {
		m[name("k", 4)(t)] = name("v", 3)(t)
	}
	return m
}

func selectors(t *rapid.T) string {
	k, v := name("k", 4)(t), name("v", 3)(t)
	switch rapid.IntRange(0, 9).Draw(t, "selector") {
	case 0:
		return "all()"
	case 1:
		return "has(" + k + ")"
	case 2:
		return "!has(" + k + ")"
	case 3:
		return k + " != '" + v + "'"
	case 4:
		return k + " in {'v1', '" + v + "'}"
	case 5:
		return k + " == '" + v + "' && has(k2)"
	case 6:
		return k + " == '" + v + "' || k1 == 'v2'"
	case 7:
		return "has(k3) && " + k + " not in {'" + v + "'}"
	}
	return k + " == '" + v + "'"
}

func address(t *rapid.T) netip.Addr {
	if chance(t, 25) {
		return netip.MustParseAddr(fmt.Sprintf("fd00::%d", rapid.IntRange(0, 5).Draw(t, "v6")))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", rapid.IntRange(0, 1).Draw(t, "net"), rapid.IntRange(0, 5).Draw(t, "v4")))
}

func hostNet(t *rapid.T) netip.Prefix {
	a := address(t)
	return netip.PrefixFrom(a, a.BitLen())
}

func network(t *rapid.T) netip.Prefix {
	a := address(t)
	p, _ := a.Prefix(pick(t, []int{a.BitLen(), a.BitLen() - 2, a.BitLen() - 8, 1, 0}))
	return p
}

func namedPort(t *rapid.T) model.NamedPort {
	return model.NamedPort{
		Name: name("port", 2)(t), Protocol: pick(t, []model.Protocol{model.TCP, model.UDP}),
		Port: uint16(rapid.IntRange(80, 81).Draw(t, "port")),
	}
}

func portMatch(t *rapid.T) model.PortMatch {
	if chance(t, 50) {
		return model.PortMatch{Name: name("port", 2)(t)}
	}
	return model.PortMatch{First: 1, Last: 80}
}

func serviceID(t *rapid.T) model.ServiceID {
	return model.ServiceID{Namespace: "ns", Name: name("svc", 2)(t)}
}

func peer(t *rapid.T) (p model.Peer) {
	if chance(t, 60) {
		p.Selector = selectors(t)
	}
	if chance(t, 20) {
		p.NotSelector = selectors(t)
	}
	if chance(t, 10) {
		p.Service = serviceID(t)
	}
	p.Ports = some(t, 1, portMatch)
	if chance(t, 20) {
		p.NotPorts = some(t, 2, portMatch)
	}
	return p
}

func rule(t *rapid.T) model.Rule {
	return model.Rule{
		Action:   pick(t, []model.Action{model.ActionAllow, model.ActionDeny, model.ActionPass}),
		Protocol: pick(t, []model.RuleProtocol{{}, {Name: "tcp"}, {Name: "udp"}, {Number: 17}}),
		Source:   peer(t), Destination: peer(t),
	}
}

func order(t *rapid.T) model.Order {
	if chance(t, 20) {
		return model.Order{}
	}
	return model.OrderOf(float64(rapid.IntRange(1, 3).Draw(t, "order")))
}

func aPolicy(t *rapid.T, id model.PolicyID) *model.Policy {
	return &model.Policy{
		ID: id, Tier: name("tier", 3)(t), Order: order(t), Selector: selectors(t), Ingress: chance(t, 50),
		Egress: chance(t, 50), InboundRules: some(t, 2, rule), OutboundRules: some(t, 2, rule),
		Untracked: chance(t, 10), PreDNAT: chance(t, 10), ApplyOnForward: chance(t, 30), Everywhere: chance(t, 10),
	}
}

func workload(t *rapid.T, id model.WorkloadID) *model.WorkloadEndpoint {
	return &model.WorkloadEndpoint{
		ID: id, State: "active", Interface: "cali" + id.Workload, Profiles: some(t, 2, name("prof", 3)),
		Nets: some(t, 2, hostNet), Labels: labels(t), Ports: some(t, 2, namedPort),
	}
}

func slice(t *rapid.T, id model.SliceID) *model.EndpointSlice {
	port := func(t *rapid.T) model.EndpointPort {
		return model.EndpointPort(namedPort(t))
	}
	return &model.EndpointSlice{
		ID: id, Service: serviceID(t), Ports: some(t, 2, port),
		Endpoints: some(t, 3, func(t *rapid.T) model.Endpoint { return model.Endpoint{Addr: address(t)} }),
	}
}

func profile(t *rapid.T, name string) *model.Profile {
	p := &model.Profile{Name: name, Labels: labels(t)}
	if chance(t, 70) {
		p.Rules = &model.ProfileRules{Inbound: some(t, 1, rule), Outbound: some(t, 1, rule)}
	}
	return p
}

func pool(t *rapid.T, id string) *model.Pool {
	modes := []string{"", "always", "cross-subnet"}
	return &model.Pool{
		ID: id, CIDR: netip.MustParsePrefix(pick(t, []string{"10.0.0.0/16", "10.0.1.0/24", "10.0.0.0/30", "fd00::/64"})),
		Masquerade: chance(t, 50), IPIPMode: pick(t, modes), VXLANMode: pick(t, modes),
	}
}

func block(t *rapid.T, cidr netip.Prefix) *model.Block {
	b := &model.Block{CIDR: cidr, Node: pick(t, []string{"", self, "n2", "n3"})}
	for _, a := range some(t, 2, address) {
		taken := slices.ContainsFunc(b.Borrowed, func(o model.BorrowedAddr) bool { return o.Addr == a })
		if node := pick(t, []string{self, "n2", "n3"}); cidr.Contains(a) && node != b.Node && !taken {
			b.Borrowed = append(b.Borrowed, model.BorrowedAddr{Addr: a, Node: node})
		}
	}
	return b
}

func host(t *rapid.T, name string) *model.Host {
	h := &model.Host{Name: name}
	if chance(t, 80) {
		h.IPv4 = netip.AddrFrom4([4]byte{192, 168, 0, byte(rapid.IntRange(1, 3).Draw(t, "host"))})
		h.Net4 = netip.PrefixFrom(h.IPv4, pick(t, []int{24, 31, 32}))
	}
	if chance(t, 30) {
		h.IPv6, h.Net6 = netip.MustParseAddr("fd01::1"), netip.MustParsePrefix("fd01::1/64")
	}
	if chance(t, 30) {
		h.VXLAN4 = netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 3).Draw(t, "tunnel"))})
	}
	if chance(t, 30) {
		h.IPIP = netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 3).Draw(t, "tunnel"))})
	}
	return h
}

// step makes one random change.
func (w *world) step(t *rapid.T, g *calc.Graph) {
	gone := chance(t, 25)
	switch rapid.IntRange(0, 15).Draw(t, "what") {
	case 0, 1:
		id := model.WorkloadID{Node: pick(t, []string{self, self, "n2"}), Orchestrator: "k8s", Workload: name("w", 4)(t), Endpoint: "eth0"}
		put(w.workloads, g.SetWorkload, id, unless(gone, workload(t, id)))
	case 2:
		id := model.HostEndpointID{Node: pick(t, []string{self, "n2"}), Name: name("h", 2)(t)}
		h := &model.HostEndpoint{
			ID: id, Interface: "eth0", Addrs: some(t, 2, address), Profiles: some(t, 2, name("prof", 3)),
			Labels: labels(t), Ports: some(t, 2, namedPort),
		}
		put(w.hostEPs, g.SetHostEndpoint, id, unless(gone, h))
	case 3:
		n := name("set", 2)(t)
		s := &model.NetworkSet{Name: n, Nets: some(t, 3, network), Labels: labels(t), Profiles: some(t, 1, name("prof", 3))}
		put(w.netsets, g.SetNetworkSet, n, unless(gone, s))
	case 4, 5:
		kind := pick(t, []model.PolicyKind{
			model.KindGlobalNetworkPolicy, model.KindAdminNetworkPolicy, model.KindStagedGlobalPolicy,
		})
		id := model.PolicyID{Kind: kind, Name: name("pol", 3)(t)}
		put(w.policies, g.SetPolicy, id, unless(gone, aPolicy(t, id)))
	case 6:
		n := name("tier", 3)(t)
		tier := &model.Tier{Name: n, Order: order(t), DefaultAction: pick(t, []model.Action{"", model.TierPass, model.TierDeny})}
		put(w.tiers, g.SetTier, n, unless(gone, tier))
	case 7:
		n := name("prof", 3)(t)
		put(w.profiles, g.SetProfile, n, unless(gone, profile(t, n)))
	case 8:
		id := model.SliceID{Namespace: "ns", Name: name("slice", 3)(t)}
		put(w.slices, g.SetSlice, id, unless(gone, slice(t, id)))
	case 9:
		id := name("pool", 2)(t)
		put(w.pools, g.SetPool, id, unless(gone, pool(t, id)))
	case 10:
		cidr := netip.MustParsePrefix(pick(t, []string{"10.0.0.0/30", "10.0.1.0/30", "10.0.1.4/32", "fd00::/126"}))
		put(w.blocks, g.SetBlock, cidr, unless(gone, block(t, cidr)))
	case 11:
		n := name("n", 3)(t)
		put(w.hosts, g.SetHost, n, unless(gone, host(t, n)))
	case 12:
		w.touch(t, g)
	case 13:
		a := netip.AddrFrom4([4]byte{192, 168, 0, byte(rapid.IntRange(1, 3).Draw(t, "host"))})
		put(w.hostIPs, setHostIP(g), name("n", 3)(t), unless(gone, &a))
	case 14:
		wg := &model.Wireguard{PublicKey: pick(t, []string{"", "k"}), PublicKeyV6: pick(t, []string{"", "k"}), IPv4: address(t)}
		put(w.wireguard, g.SetWireguard, name("n", 3)(t), unless(gone, wg))
	case 15:
		p := param{pick(t, []string{"", self, "n2"}), pick(t, []string{
			"IPv4VXLANTunnelAddr", "IPv6VXLANTunnelAddr", "VXLANTunnelMACAddr", "VXLANTunnelMACAddrV6", "VXLANEnabled",
		})}
		value := map[bool]string{true: "10.0.0.9", false: "true"}[chance(t, 80)]
		put(w.params, setParam(g), p, unless(gone, &value))
	}
}

// touch changes one field of one policy, or of one workload.
func (w *world) touch(t *rapid.T, g *calc.Graph) {
	for id, p := range w.policies {
		if id.Kind != model.KindGlobalNetworkPolicy || id.Name != "pol1" {
			continue
		}
		c := *p
		switch rapid.IntRange(0, 3).Draw(t, "field") {
		case 0:
			c.Order = order(t)
		case 1:
			c.Tier = name("tier", 3)(t)
		case 2:
			c.ApplyOnForward = !c.ApplyOnForward
		case 3:
			c.Everywhere = !c.Everywhere
		}
		put(w.policies, g.SetPolicy, id, &c)
	}
	id := model.WorkloadID{Node: self, Orchestrator: "k8s", Workload: "w1", Endpoint: "eth0"}
	if e := w.workloads[id]; e != nil {
		c := *e
		switch rapid.IntRange(0, 2).Draw(t, "field") {
		case 0:
			c.Nets = some(t, 2, hostNet)
		case 1:
			c.Ports = some(t, 2, namedPort)
		case 2:
			c.Profiles = some(t, 2, name("prof", 3))
		}
		put(w.workloads, g.SetWorkload, id, &c)
	}
}

func unless[T any](gone bool, v *T) *T {
	if gone {
		return nil
	}
	return v
}

// inherited are all labels of an item: its own, then its profiles', in order.
func (w *world) inherited(own map[string]string, profiles []string) map[string]string {
	out := maps.Clone(own)
	for _, name := range profiles {
		if p := w.profiles[name]; p != nil {
			for k, v := range p.Labels {
				if _, ok := out[k]; !ok {
					out[k] = v
				}
			}
		}
	}
	return out
}

func prefixList(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func addrList(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}
