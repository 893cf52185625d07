package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/failsafe"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

func hostMessage(id string, e *felix.HostEndpoint) *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_HostEndpointUpdate{
		HostEndpointUpdate: &felix.HostEndpointUpdate{Id: &felix.HostEndpointID{EndpointId: id}, Endpoint: e},
	}}
}

// drawHost draws one of two host endpoints, at one of several places, or its removal.
func drawHost(t *rapid.T) *felix.ToDataplane {
	id := pick(t, "host", []string{"h1", "h2"})
	if rapid.IntRange(0, 4).Draw(t, "remove") == 0 {
		return &felix.ToDataplane{Payload: &felix.ToDataplane_HostEndpointRemove{
			HostEndpointRemove: &felix.HostEndpointRemove{Id: &felix.HostEndpointID{EndpointId: id}},
		}}
	}
	e, passed := drawEndpoint(t), drawEndpoint(t)
	out := &felix.HostEndpoint{Name: pick(t, "at", []string{"uplink", "uplink", "overlay", "*", "eth7", ""}), Tiers: e.GetTiers(), ProfileIds: e.GetProfileIds()}
	if out.GetName() == "" {
		out.ExpectedIpv4Addrs = []string{nodeIPs[0].String()}
	}
	if rapid.Bool().Draw(t, "forward") {
		out.ForwardTiers = passed.GetTiers()
	}
	return hostMessage(id, out)
}

// hostAt returns the host endpoint of an interface; nil: none.
func (w *world) hostAt(iface string) *felix.HostEndpoint {
	for _, names := range [][]string{{iface, "", "eth7"}, {"*"}} {
		for _, id := range []string{"h1", "h2"} {
			e := w.hosts[id]
			if e == nil || !slices.Contains(names, e.GetName()) {
				continue
			}
			if e.GetName() == iface || e.GetName() == "*" || iface == "uplink" && len(e.GetExpectedIpv4Addrs()) > 0 {
				return e
			}
		}
	}
	return nil
}

// hostAllows returns the verdict of a host endpoint for packets of the node itself, or for forwarded ones.
func (w *world) hostAllows(e *felix.HostEndpoint, egress, own bool, p packet) bool {
	if e == nil {
		return true
	}
	if !own {
		return w.tiers(e.GetForwardTiers(), egress, p) != "deny"
	}
	open := map[string]bool{"6 22": !egress, "17 68": !egress, "6 179": true, "17 53": egress}
	if open[fmt.Sprintf("%d %d", p.proto, p.dport)] {
		return true
	}
	return w.allows(&felix.WorkloadEndpoint{State: "active", Tiers: e.GetTiers(), ProfileIds: e.GetProfileIds()}, egress, p)
}

// hostFlows are packets that host endpoints may decide about.
func hostFlows(src, dst netip.Addr) []packet {
	out := flows(src, dst)
	for _, port := range []uint16{22, 53, 68, 179} {
		out = append(out, packet{src, dst, 6, 40000, port}, packet{src, dst, 17, 40000, port})
	}
	return out
}

// Packets from outside and packets of the node itself meet the verdicts of host endpoints; node ports count as forwarded.
func TestHostEndpoints(t *testing.T) {
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		t.Run(view.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := testNode(view)
				n.ByteMatch6 = rapid.Bool().Draw(t, "bytes")
				n.Outer = []dataplane.Outer{
					{Addr: nodeIPs[0], Proto: 6, Port: 443, Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.1.1:80")}},
					{Addr: nodeIPs[0], Proto: 6, Port: 80, Backends: []netip.AddrPort{netip.AddrPortFrom(nodeIPs[0], 80)}},
				}
				s := newTightCheckedScene(n, rapid.Bool().Draw(t, "tight"), pick(t, "sources", modes))
				s.send(start()...)
				s.send(drawHost(t))
				for range rapid.IntRange(1, 15).Draw(t, "steps") {
					s.send(drawMessage(t, s.w))
				}
				s.settle(t)
				s.checkHosts(t)
			})
		})
	}
}

func (s *scene) checkHosts(t *rapid.T) {
	at := func(iface string, output bool, p packet, want bool) {
		switch got := s.b.on(iface, output, p); {
		case got == want:
		case !got && strings.Contains(strings.Join(s.reasons(), "\n"), "rule"): // some match is unknown
		default:
			t.Fatalf("%s at %s (output %v): want %v got %v\n%s", p, iface, output, want, got, s)
		}
	}
	verdict := func(iface string, p packet, want bool) { at(iface, false, p, want) }
	for _, src := range append(slices.Clone(remotes), hairpin...) {
		for _, dst := range remotes {
			if match.FamilyOf(src) != match.FamilyOf(dst) || src == dst {
				continue
			}
			out := leavesBy(dst)
			for _, p := range hostFlows(src, dst) {
				at(out, true, p, s.w.hostAllows(s.w.hostAt(out), true, false, p))
				p.src = nodeIPs[match.FamilyOf(src)]
				at(out, true, p, true)
			}
		}
	}
	for _, f := range match.Families {
		list, pod := ends(f)
		for _, far := range remotes {
			if match.FamilyOf(far) != f {
				continue
			}
			for _, near := range list {
				if slices.Contains(remotes, near) {
					continue
				}
				home := slices.Contains(nodeIPs, near)
				for _, p := range hostFlows(far, near) {
					own := home && (p.proto != 6 || p.dport != 443 || s.r.pods.Node.View(f) == dataplane.PostDNAT || f == match.V6)
					for _, iface := range []string{"uplink", "overlay"} {
						host := s.w.hostAllows(s.w.hostAt(iface), false, own, p)
						if host && s.refuses(pod[near], p) {
							if h := s.r.hosts.Hook(iface); h == nil || h.Forwards {
								verdict(iface, p, false)
							}
							continue
						}
						verdict(iface, p, host)
					}
				}
				for _, p := range hostFlows(near, far) {
					if home {
						free := leavesBy(far) == "overlay" && s.w.hostAt("overlay") == nil
						verdict("host", p, free || s.w.hostAllows(s.w.hostAt("uplink"), true, true, p))
					}
				}
				if pod[near] != "" {
					for _, p := range hostFlows(nodeIPs[f], near) {
						verdict("host", p, true)
					}
				}
			}
		}
	}
}

func (s *scene) reasons() []string {
	var out []string
	for _, notes := range s.b.notes {
		for _, n := range notes {
			out = append(out, n.Reason)
		}
	}
	return out
}

// Permitted packets in one direction let their answers pass in the other.
func TestHostEndpointsLetAnswersPass(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	s.send(start()...)
	s.send(hostMessage("h", &felix.HostEndpoint{Name: "uplink"}))
	s.settle(t)
	for iface, want := range map[string][]string{"uplink": {table.StaticOut, table.Outgoing, table.PermitEgress}, "overlay": {table.PermitEgress}, "host": {table.PermitIngress}} {
		l := s.b.lists[iface]
		if !slices.Equal(l.GetOutput(), want) || len(l.GetInput()) == 0 {
			t.Errorf("%s has %v", iface, l)
		}
	}
	if c, ok := s.r.Cause("uplink", false, len(s.b.lists["uplink"].GetInput())-1, 0); !ok || c.Endpoint != "h" || !c.Host || c.Denied {
		t.Errorf("what is passed on: %+v, %v", c, ok)
	}
	if c, ok := s.r.Cause("host", false, len(s.b.lists["host"].GetInput())-1, 0); !ok || c.Endpoint != "h" || !c.Egress || !c.Denied {
		t.Errorf("what the node sends: %+v, %v", c, ok)
	}
}

func TestHostEndpointNotes(t *testing.T) {
	tiers := []*felix.TierInfo{{Name: "a", IngressPolicies: []string{"a1"}, EgressPolicies: []string{"a2"}}}
	for _, c := range []struct {
		name string
		host *felix.HostEndpoint
		want string
	}{
		{"uplink", &felix.HostEndpoint{Name: "uplink"}, ""},
		{"addresses", &felix.HostEndpoint{ExpectedIpv6Addrs: []string{nodeIPs[1].String()}}, ""},
		{"all", &felix.HostEndpoint{Name: "*"}, ""},
		{"elsewhere", &felix.HostEndpoint{Name: "eth7", Tiers: tiers}, HostNotEnforced},
		{"overlay", &felix.HostEndpoint{Name: "overlay"}, "is not at the uplink: packets that the node itself sends are not evaluated"},
		{"forward egress", &felix.HostEndpoint{Name: "uplink", ForwardTiers: tiers}, ""},
		{"untracked", &felix.HostEndpoint{Name: "uplink", UntrackedTiers: tiers}, "untracked policies are not enforced"},
		{"before DNAT", &felix.HostEndpoint{Name: "uplink", PreDnatTiers: tiers}, "policies before DNAT are not enforced"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(testNode(dataplane.PreDNAT))
			s.send(start()...)
			s.send(hostMessage("h", c.host))
			s.settle(t)
			if got := strings.Join(s.reasons(), "; "); got != c.want {
				t.Errorf("notes are %q, want %q", got, c.want)
			}
		})
	}
}

func TestFailsafes(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	s.send(start()...)
	s.send(hostMessage("h", &felix.HostEndpoint{Name: "uplink"}))
	s.send(&felix.ToDataplane{Payload: &felix.ToDataplane_ConfigUpdate{ConfigUpdate: &felix.ConfigUpdate{
		Config: map[string]string{failsafe.ConfigIn: "tcp:8.0.0.0/8:8080"},
	}}})
	s.settle(t)
	for _, c := range []struct {
		from string
		port uint16
		want bool
	}{{"8.8.8.8", 8080, true}, {"9.9.9.9", 8080, false}, {"8.8.8.8", 22, false}} {
		if got := s.b.on("uplink", false, packet{netip.MustParseAddr(c.from), nodeIPs[0], 6, 40000, c.port}); got != c.want {
			t.Errorf("from %s to %d: %v, want %v", c.from, c.port, got, c.want)
		}
	}
	for _, c := range []struct {
		value string
		want  map[uint16]bool
	}{
		{"none", map[uint16]bool{179: false, 443: false}},
		{"tcp:443", map[uint16]bool{179: false, 443: true}},
		{"what is this", map[uint16]bool{179: true, 443: false}}, // as if it were absent
		{"", map[uint16]bool{179: true, 443: false}},
	} {
		s.send(&felix.ToDataplane{Payload: &felix.ToDataplane_ConfigUpdate{ConfigUpdate: &felix.ConfigUpdate{Config: map[string]string{failsafe.ConfigOut: c.value}}}})
		s.settle(t)
		for port, want := range c.want {
			if got := s.b.on("host", false, packet{nodeIPs[0], remotes[2], match.TCP, 40000, port}); got != want {
				t.Errorf("%q: the node to port %d: %v, want %v", c.value, port, got, want)
			}
		}
	}
}

// A list that is too long for the interface becomes two equivalent tables, and a set that gets its first member opens the rules
// that use it.
func TestHostEndpointsInFewTables(t *testing.T) {
	var names []string
	s := newTightScene(testNode(dataplane.PreDNAT), true)
	s.send(start()...)
	for i := range 24 { // one segment each
		name := fmt.Sprintf("x%02d", i)
		names = append(names, name)
		rule := &felix.Rule{Action: []string{"allow", "deny"}[i%2], Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "tcp"}}}
		rule.DstPorts = []*felix.PortRange{{First: int32(1000 + i), Last: int32(1000 + i)}}
		s.send(policyMessage(&felix.PolicyID{Tier: "a", Name: name}, &felix.Policy{InboundRules: []*felix.Rule{rule}}))
	}
	joiners := &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcIpSetIds: []string{"s1"}}}}
	s.send(policyMessage(&felix.PolicyID{Tier: "a", Name: "x99"}, joiners))
	check := func(names []string, tables int) {
		t.Helper()
		s.send(hostMessage("h", &felix.HostEndpoint{Name: "uplink", Tiers: []*felix.TierInfo{{Name: "a", IngressPolicies: names}}}))
		s.settle(t)
		if n := len(s.b.lists["uplink"].GetInput()); n != tables {
			t.Errorf("%d tables, want %d", n, tables)
		}
		for i := range names[:len(names)-1] {
			p := packet{remotes[2], nodeIPs[0], 6, 40000, uint16(1000 + i)}
			if got, want := s.b.on("uplink", false, p), i%2 == 0; got != want {
				t.Errorf("%s: %v, want %v", p, got, want)
			}
		}
	}
	few, many := append(slices.Clone(names[:2]), "x99"), append(slices.Clone(names), "x99")
	check(few, 8) // two static tables, failsafe ports, tunnels, two policies, the end of the tier, forwarded packets; the third allows nobody
	check(many, 2)
	last := packet{remotes[2], nodeIPs[0], 6, 40000, 2000}
	for _, c := range []struct {
		names   []string
		message *felix.ToDataplane
		want    bool
	}{
		{many, deltaAdd("s1", "8.8.8.8/32"), true},
		{many, setMessage("s1", felix.IPSetUpdate_NET, nil), false},
		{few, deltaAdd("s1", "8.8.8.8/32"), true},
	} {
		s.send(hostMessage("h", &felix.HostEndpoint{Name: "uplink", Tiers: []*felix.TierInfo{{Name: "a", IngressPolicies: c.names}}}))
		s.settle(t)
		s.send(c.message)
		s.settle(t)
		if got := s.b.on("uplink", false, last); got != c.want {
			t.Errorf("with %d policies %s: %v, want %v", len(c.names), last, got, c.want)
		}
	}
}

// One table denies leaving packets if the list is too long, and the cause still names the policy.
func TestExitsInFewTables(t *testing.T) {
	var names []string
	s := newTightScene(testNode(dataplane.PreDNAT), true)
	s.send(start()...)
	for i := range 24 { // one segment each
		name := fmt.Sprintf("x%02d", i)
		names = append(names, name)
		rule := &felix.Rule{Action: []string{"allow", "deny"}[i%2], Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "tcp"}}}
		rule.DstPorts = []*felix.PortRange{{First: int32(1000 + i), Last: int32(1000 + i)}}
		s.send(policyMessage(&felix.PolicyID{Tier: "a", Name: name}, &felix.Policy{OutboundRules: []*felix.Rule{rule}}))
	}
	s.send(podMessage(0, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}}))
	check := func(names []string, tables int) {
		t.Helper()
		s.send(hostMessage("h", &felix.HostEndpoint{Name: "uplink", ForwardTiers: []*felix.TierInfo{{Name: "a", EgressPolicies: names}}}))
		s.settle(t)
		if n := len(s.b.lists["uplink"].GetOutput()); n != tables {
			t.Errorf("%d tables, want %d", n, tables)
		}
		for i := range 24 {
			want := i%2 == 0 && i < len(names)
			p := packet{podIPs[0][match.V4], remotes[2], match.TCP, 40000, uint16(1000 + i)}
			if got := s.b.masqueraded(p, "p1"); got != want {
				t.Errorf("%s from the pod: %v, want %v", p, got, want)
			}
			if p.src = hairpin[0]; s.b.on("uplink", true, p) != want {
				t.Errorf("%s from elsewhere: want %v", p, want)
			}
		}
	}
	check(names[:2], 5) // a static table, the node itself, two policies, the end of the tier
	check(names, 4)     // these, all policies, and the end
	_, place, rule := s.b.passes("uplink", true, packet{hairpin[0], remotes[2], match.TCP, 40000, 1001})
	if c, ok := s.r.Cause("uplink", true, place, rule); !ok || c.Endpoint != "h" || !c.Host || !c.Egress || !c.Denied || c.Policy != "x01" {
		t.Errorf("denied by %+v, %v", c, ok)
	}
}
