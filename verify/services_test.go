package verify

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/dump/translation"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

var (
	vip      = netip.MustParseAddr("10.96.0.10")                               // read only
	backends = []string{"10.1.1.2:8080", "10.1.2.2:8080"}                      // read only
	pods     = netip.MustParsePrefix("10.1.1.0/24")                            // read only
	outside  = netip.MustParsePrefix("0.0.0.0/0")                              // read only
	balancer = netip.MustParseAddr("203.0.113.1")                              // read only
	ranges   = netip.MustParsePrefix("198.51.100.0/24")                        // read only
	own      = netip.MustParseAddr("192.168.16.1")                             // read only
	overlay  = serving.At{Addr: own, Port: 4789, Protocol: model.UDP}          // read only
	discard  = netip.MustParseAddrPort("192.0.2.3:1")                          // read only
	leaving  = netip.MustParseAddrPort("10.1.2.3:8080")                        // read only
	both     = map[string]int{"nat44-ed-classify": 1}                          // read only
	uplink   = map[string]int{"nat-pre-out2in": 1, "nat-pre-in2out-output": 1} // read only
)

// leave is the check of packets that leave the cluster.
const leave = "packets that leave the cluster"

// site is a node and a VPP that translates for it correctly: a cluster IP, and a load-balancer IP with source ranges.
type site struct {
	node  *serving.Node
	state *dump.State
	vpp   *translation.State
}

func newSite() *site {
	id := model.ServiceID{Namespace: "prod", Name: "web"}
	frontend := func(a netip.Addr) *serving.Frontend {
		f := &serving.Frontend{At: serving.At{Addr: a, Port: 80, Protocol: model.TCP}, Service: id, Fate: serving.Balanced, Leaving: []netip.AddrPort{leaving}}
		for _, b := range backends {
			f.Backends = append(f.Backends, serving.Backend{At: netip.MustParseAddrPort(b), Weight: 1})
		}
		return f
	}
	restricted := frontend(balancer)
	restricted.Hides, restricted.Clients = true, []netip.Prefix{ranges}
	s := &site{
		node: &serving.Node{
			Frontends: []*serving.Frontend{frontend(vip), restricted}, Rejecting: map[netip.Addr]model.ServiceID{vip: id, balancer: id},
			Occupied: map[netip.Addr]bool{podAddr: true}, Own: []netip.Addr{own}, PodCIDRs: []netip.Prefix{pods}, Services: []model.ServiceID{id},
			Pods: []serving.PodAddr{{Addr: podAddr, ID: model.PodID{Namespace: "prod", Name: "web-0"}}}, Dropping: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		},
		vpp: &translation.State{
			NAT44: true, Forwarding: true, Sources: []netip.Addr{own}, Exempt: []serving.At{overlay},
			Timeouts: serving.Timeouts{UDP: 60, TCPEstablished: 7440, TCPTransitory: 120, ICMP: 30}, Loopbacks: []netip.Addr{netip.MustParseAddr("10.1.1.254")},
			Roles: map[uint32]translation.Role{1: {Inside: true}, 2: {Output: true}}, Nodes: map[uint32]map[string]int{1: both, 2: uplink},
			Routes: map[translation.Lookup]translation.Route{
				translation.Whole(vip): {Kind: translation.Rejects, Bits: 32}, translation.Whole(balancer): {Kind: translation.Rejects, Bits: 32},
				{Prefix: outside, Exact: true}:                               {Kind: translation.Forwards, Interface: 2, Known: true},
				{Prefix: netip.MustParsePrefix("10.96.0.0/16"), Exact: true}: {Kind: translation.Drops, Bits: 16},
				{Prefix: netip.PrefixFrom(discard.Addr(), 32)}:               {Kind: translation.Drops, Bits: 24},
			},
		},
	}
	for _, f := range s.node.Frontends {
		m := translation.Mapping{At: f.At, Engine: serving.NAT44, OneWay: true, Hides: f.Hides, Loops: !f.Hides}
		for _, b := range f.Backends {
			m.Targets = append(m.Targets, translation.Target{At: b.At, Share: 2}, translation.Target{At: netip.MustParseAddrPort("192.0.2.5:2")})
		}
		s.vpp.Mappings = append(s.vpp.Mappings, m)
	}
	denies := rule(dump.Deny, func(b *space.Box) {
		b.Dst, b.Protocols, b.DstPorts = netip.PrefixFrom(balancer, 32), space.One(space.TCP), space.One(80)
	})
	permits := denies
	permits.Verdict, permits.Src = dump.Permit, ranges
	s.state = &dump.State{
		Interfaces: map[uint32]*dump.Interface{1: {Name: "tap1", Input: []uint32{0}}, 2: {Name: "eth0", Input: []uint32{0}}},
		Behind:     map[netip.Addr]uint32{podAddr: 1}, Lists: map[uint32]*dump.List{0: {Name: "ca1:s:ABC:all", Space: []space.Rule{permits, denies}}},
	}
	return s
}

// TestCompareServices makes one change to a VPP that is correct, or to what Services say.
func TestCompareServices(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*site, *translation.Mapping) // of the cluster IP
		of     string                            // the check that differs, or is not compared; "": none
		vpp    string
	}{
		"correct":            {func(*site, *translation.Mapping) {}, "", ""},
		"no mapping":         {func(s *site, _ *translation.Mapping) { s.vpp.Mappings = s.vpp.Mappings[1:] }, "prod/web", "no mapping: rejected"},
		"another endpoint":   {func(_ *site, m *translation.Mapping) { m.Targets[0].At = netip.MustParseAddrPort("10.1.1.9:53") }, "prod/web", "forwards to 10.1.1.9:53 (2 of 4), which is no endpoint"},
		"another port":       {func(_ *site, m *translation.Mapping) { m.Targets[0].At = netip.MustParseAddrPort("10.1.1.2:81") }, "prod/web", "forwards to 10.1.1.2:81 (2 of 4), which is no endpoint"},
		"an endpoint is off": {func(_ *site, m *translation.Mapping) { m.Targets = m.Targets[2:] }, "prod/web", "10.1.1.2:8080 gets no connection: share 0"},
		"share 0":            {func(_ *site, m *translation.Mapping) { m.Targets[0].Share = 0 }, "prod/web", "10.1.1.2:8080 gets no connection: share 0"},
		"uneven":             {func(_ *site, m *translation.Mapping) { m.Targets[0].Share = 3 }, "prod/web", "10.1.1.2:8080 gets 3 of 5 connections, and should get 1 of 2"},
		"by weights": {func(s *site, m *translation.Mapping) {
			m.Targets[0].Share, s.node.Frontends[0].Backends[0].Weight = 6, 3
		}, "", ""},
		"a pad gets connections": {func(_ *site, m *translation.Mapping) { m.Targets[1].Share = 1 }, "prod/web", "forwards to 192.0.2.5:2 (1 of 5), a place without an endpoint"},
		"drained":                {func(_ *site, m *translation.Mapping) { m.Targets = append(m.Targets, translation.Target{At: leaving}) }, "", ""},
		"not drained": {func(_ *site, m *translation.Mapping) {
			m.Targets = append(m.Targets, translation.Target{At: leaving, Share: 2})
		}, "prod/web", "10.1.2.3:8080 (2 of 6), which gets no new connections"},
		"kept after its end": {func(s *site, m *translation.Mapping) {
			s.node.Frontends[0].Leaving, m.Targets = nil, append(m.Targets, translation.Target{At: leaving})
		}, "prod/web", "keeps connections to 10.1.2.3:8080"},
		"twice":         {func(_ *site, m *translation.Mapping) { m.Targets = append(m.Targets, m.Targets[0], m.Targets[2]) }, "prod/web", "twice"},
		"another table": {func(_ *site, m *translation.Mapping) { m.Targets[0].Odd = "in table 7" }, "prod/web", "forwards to 10.1.1.2:8080 in table 7"},
		"sum 0":         {func(_ *site, m *translation.Mapping) { m.Ends = true }, "prod/web", "add up to 0"},
		"253 of more":   {func(s *site, _ *translation.Mapping) { s.node.Frontends[0].Most = 2 }, "", ""},
		"252 of more":   {func(s *site, _ *translation.Mapping) { s.node.Frontends[0].Most = 3 }, "prod/web", "forwards to 2 endpoints, and 3 are possible"},
		"both ways":     {func(_ *site, m *translation.Mapping) { m.OneWay = false }, "prod/web", "not out2in only"},
		"no hairpin":    {func(_ *site, m *translation.Mapping) { m.Loops = false }, "prod/web", "no self-twice-nat"},
		"hidden client": {func(_ *site, m *translation.Mapping) { m.Loops, m.Hides = false, true }, "prod/web", "(twice-nat)"},
		"shown client":  {func(s *site, _ *translation.Mapping) { s.vpp.Mappings[1].Hides = false }, "prod/web", "no twice-nat"},
		"no range of pods": {func(s *site, m *translation.Mapping) {
			m.Loops, s.vpp.Mappings[1].Hides, s.vpp.Loopbacks, s.node.PodCIDRs = false, false, nil, nil
		}, "", ""},
		"loopback off":      {func(s *site, _ *translation.Mapping) { s.vpp.Loopbacks = nil }, "sources of nat44", "twice-nat has no address"},
		"loopback of a pod": {func(s *site, _ *translation.Mapping) { s.vpp.Loopbacks[0] = podAddr }, "sources of nat44", "answers go to 10.1.1.2"},
		"additional mapping": {func(s *site, m *translation.Mapping) {
			n := *m
			n.Port = 81
			s.vpp.Mappings = append(s.vpp.Mappings, n)
		}, "nat44 mapping tcp 10.96.0.10:81", "translated to 10.1.1.2:8080 (2 of 4)"},
		"cnat has it, too": {func(s *site, m *translation.Mapping) {
			n := *m
			n.Engine = serving.CNAT
			s.vpp.Mappings = append(s.vpp.Mappings, n)
		}, "cnat mapping tcp 10.96.0.10:80", "translated"},
		"exempt": {func(s *site, m *translation.Mapping) { s.vpp.Exempt = append(s.vpp.Exempt, m.At) }, "identity mapping tcp 10.96.0.10:80", "exempts"},
		"another exemption": {func(s *site, m *translation.Mapping) {
			s.vpp.Exempt = append(s.vpp.Exempt, serving.At{Addr: m.Addr, Port: 4789, Protocol: model.UDP})
		}, "", ""},
		"a timeout":           {func(s *site, _ *translation.Mapping) { s.vpp.Timeouts.TCPTransitory = 240 }, "timeouts of nat44", "ends after 240 s"},
		"no address to leave": {func(s *site, _ *translation.Mapping) { s.vpp.Sources = nil }, leave, "nat44 has no address for packets that leave"},
		"they keep theirs": {func(s *site, _ *translation.Mapping) {
			s.vpp.Roles[2], s.vpp.Nodes[2] = translation.Role{Inside: true, Outside: true}, both
		}, leave, "pods keep their addresses"},
		"a foreign address":         {func(s *site, _ *translation.Mapping) { s.vpp.Sources = append(s.vpp.Sources, podAddr) }, leave, "answers go to 10.1.1.2"},
		"the overlay is translated": {func(s *site, _ *translation.Mapping) { s.vpp.Exempt = nil }, leave, "no identity mapping exempts udp 192.168.16.1:4789"},
		"another overlay":           {func(s *site, _ *translation.Mapping) { s.vpp.Exempt[0].Port = 4790 }, leave, "no identity mapping exempts udp 192.168.16.1:4789"},
		"all of the address":        {func(s *site, _ *translation.Mapping) { s.vpp.Exempt[0].Port = 0 }, "", ""},
		"rejected, and mapped":      {func(s *site, _ *translation.Mapping) { s.node.Frontends[0].Fate = serving.Rejected }, "prod/web", "translated to"},
		"silent, and mapped":        {func(s *site, _ *translation.Mapping) { s.node.Frontends[0].Fate = serving.Silent }, "prod/web", "forwards to"},
		"silent": {func(s *site, m *translation.Mapping) {
			s.node.Frontends[0].Fate, m.Targets = serving.Silent, []translation.Target{{At: discard, Share: 1}}
		}, "", ""},
		"refused, and mapped": {func(s *site, _ *translation.Mapping) { s.node.Frontends[0].Refused = "because" }, "prod/web", "translated to"},
		"refused": {func(s *site, _ *translation.Mapping) {
			s.node.Frontends[0].Refused, s.vpp.Mappings = "because", s.vpp.Mappings[1:]
		}, "prod/web", ""},
		"not rejected": {func(s *site, _ *translation.Mapping) { delete(s.vpp.Routes, translation.Whole(vip)) }, "prod/web", "follows the route of a larger prefix"},
		"dropped": {func(s *site, _ *translation.Mapping) {
			s.vpp.Routes[translation.Whole(vip)] = translation.Route{Kind: translation.Drops}
		}, "prod/web", "VPP drops"},
		"the kernel rejects": {func(s *site, _ *translation.Mapping) {
			s.vpp.Routes[translation.Whole(vip)] = translation.Route{Kind: translation.Forwards, Interface: 7, Known: true, Via: netip.MustParseAddr("169.254.1.9")}
		}, "", ""},
		"unallocated": {func(s *site, _ *translation.Mapping) {
			delete(s.vpp.Routes, translation.Lookup{Prefix: s.node.Dropping[0], Exact: true})
		}, "range of cluster IPs 10.96.0.0/16", "follows"},
		"no forwarding": {func(s *site, _ *translation.Mapping) { s.vpp.Forwarding = false }, "interface", "does not forward"},
		"no role":       {func(s *site, _ *translation.Mapping) { delete(s.vpp.Roles, 1) }, "interface tap1", "no role"},
		"inside only":   {func(s *site, _ *translation.Mapping) { s.vpp.Nodes[1] = map[string]int{"nat-pre-in2out": 1} }, "interface tap1", "0.0.0.0"},
		"outside only":  {func(s *site, _ *translation.Mapping) { s.vpp.Roles[1] = translation.Role{Outside: true} }, "interface tap1", "outside only"},
		"node twice":    {func(s *site, _ *translation.Mapping) { s.vpp.Nodes[1] = map[string]int{"nat44-ed-classify": 2} }, "interface tap1", "2 times"},
		"output at a pod": {func(s *site, _ *translation.Mapping) {
			s.vpp.Roles[1], s.vpp.Nodes[1] = translation.Role{Output: true}, uplink
		}, "interface tap1", "output feature"},
		"output incomplete": {func(s *site, _ *translation.Mapping) { s.vpp.Nodes[2] = map[string]int{"nat-pre-out2in": 1} }, "interface eth0", "leaving packets 0 times"},
		"nodes not shown":   {func(s *site, _ *translation.Mapping) { delete(s.vpp.Nodes, 2) }, "interface eth0", "does not show"},
		"ranges not asked":  {func(s *site, _ *translation.Mapping) { s.state.Interfaces[2].Input = nil }, "interface eth0", "passed by the first list"},
		"client in ranges":  {func(s *site, _ *translation.Mapping) { s.state.Lists[0].Space = s.state.Lists[0].Space[1:] }, "interface", "dropped by the first list"},
		"too many denied":   {func(s *site, _ *translation.Mapping) { s.state.Lists[0].Space[1].DstPorts.Last = 81 }, "interface", "the list of source ranges drops it"},
		"a closed pod": {func(s *site, _ *translation.Mapping) {
			s.state.Interfaces[1].Input, s.state.Lists[1] = []uint32{1}, &dump.List{Name: "deny", Space: []space.Rule{rule(dump.Deny, nil)}}
		}, "", ""},
	} {
		s := newSite()
		tc.change(s, &s.vpp.Mappings[0])
		seen := false
		for _, c := range CompareServices(space.New(), s.node, s.state, s.vpp, Config{Node: "node-1"}) {
			if c.Verdict == Equal {
				continue
			}
			if tc.of == "" || !strings.HasPrefix(c.Of, tc.of) {
				t.Errorf("%s: %+v", name, c)
				continue
			}
			seen = true
			switch {
			case tc.vpp == "":
				if c.Verdict != Unknown || len(c.Why) == 0 {
					t.Errorf("%s: %+v", name, c)
				}
			case c.Verdict != Different || !strings.Contains(c.Differences[0].VPP, tc.vpp) || c.Differences[0].Packet == "":
				t.Errorf("%s: %+v", name, c)
			}
		}
		if seen != (tc.of != "") {
			t.Errorf("%s: seen %v", name, seen)
		}
	}
}

// TestServicePacket: the packet of a difference is one to send, and a question for the trace command.
func TestServicePacket(t *testing.T) {
	s := newSite()
	s.vpp.Mappings = nil
	d := CompareServices(space.New(), s.node, s.state, s.vpp, Config{Node: "node-1"})[0].Differences
	want := []Translated{
		{
			Packet: "tcp 10.1.1.2:40000 -> 10.96.0.10:80 SYN", Header: example.HeaderOf(space.Header{Src: netip.MustParseAddr("10.1.1.2"), Dst: netip.MustParseAddr("10.96.0.10"), Protocol: space.TCP, SrcPort: 40000, DstPort: 80, Flags: space.SYN}),
			VPP: "no mapping: rejected", Service: "forwarded to 10.1.1.2:8080, 10.1.2.2:8080 ()", Trace: `{"from":"pod:prod/web-0","protocol":"TCP","sourcePort":40000,"to":"10.96.0.10:80"}`,
		},
		{
			Packet: "tcp 198.51.100.7:40000 -> 203.0.113.1:80 SYN", Header: example.HeaderOf(space.Header{Src: netip.MustParseAddr("198.51.100.7"), Dst: netip.MustParseAddr("203.0.113.1"), Protocol: space.TCP, SrcPort: 40000, DstPort: 80, Flags: space.SYN}),
			VPP: "no mapping: rejected", Service: "forwarded to 10.1.1.2:8080, 10.1.2.2:8080 ()", Trace: `{"from":"external:198.51.100.7@node-1","protocol":"TCP","sourcePort":40000,"to":"203.0.113.1:80"}`,
		},
	}
	if diff := cmp.Diff(want, d, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
