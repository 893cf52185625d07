package acl

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// outsiders are sources that only the node has, and sources that others have, of a family.
func outsiders(n dataplane.Node, f match.Family) (own, others []netip.Addr) {
	for _, a := range slices.Concat(podIPs[0], podIPs[1], hairpin, n.HostAddrs) {
		if match.FamilyOf(a) == f {
			own = append(own, a)
		}
	}
	for _, a := range slices.Concat(remotes, addrs("198.51.100.7", "0.0.0.0", "2001:db8::7", "fe80::1")) {
		if match.FamilyOf(a) == f {
			others = append(others, a)
		}
	}
	return own, others
}

// checkOutsiders checks packets that enter by the uplink and the overlay, or leave by an overlay that bridges.
func (s *scene) checkOutsiders(t *testing.T, n dataplane.Node, checked bool) {
	t.Helper()
	for _, iface := range []string{"uplink", "overlay", "host"} {
		for _, f := range match.Families {
			own, others := outsiders(n, f)
			for i, src := range slices.Concat(own, others) {
				for _, dst := range []netip.Addr{podIPs[2][f], remotes[3*int(f)]} {
					for _, p := range flows(src, dst) {
						leaves := iface == "overlay" && dst == remotes[3*int(f)]
						if want := !checked || iface == "host" || i >= len(own) || leaves; s.b.on(iface, false, p) != want {
							t.Errorf("%s at %s: passes %v", p, iface, !want)
						}
					}
				}
			}
		}
	}
}

// If policies restrict the packets to a local pod, none enters by the uplink or the overlay from an address that only this node has,
// regardless of the other lists of these interfaces. The overlay lets pass what leaves by it.
func TestOutsideSources(t *testing.T) {
	ports := &felix.Policy{OutboundRules: []*felix.Rule{sctpRule("allow", 80, 80)}}
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		for _, mode := range []SourceCheck{SourceStrict, SourceOff} {
			for _, bytes := range []bool{false, true} {
				n := testNode(view)
				n.Own, n.ByteMatch6 = slices.Concat(n.Own[:len(n.Own)-1], []netip.Prefix{netip.MustParsePrefix("fd00:1::/63")}), bytes
				slices.SortFunc(n.Own, netip.Prefix.Compare)
				s := newCheckedScene(n, mode)
				s.send(start()...)
				s.send(openPod(0), policyMessage(policyIDs[0], &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcNet: []string{"10.1.2.1/32"}}}}), policyMessage(policyIDs[1], ports))
				s.settle(t)
				if len(s.b.lists["uplink"].GetInput())+len(s.b.lists["overlay"].GetInput()) > 0 {
					t.Errorf("%s: %v without policies", view, s.b.lists["uplink"])
				}
				for _, step := range []struct {
					what  string
					msg   []*felix.ToDataplane
					first string
				}{
					{"ingress", []*felix.ToDataplane{podMessage(0, withPolicies("a1", ""))}, table.OutsideOnly},
					{"egress", []*felix.ToDataplane{podMessage(0, withPolicies("a1", "a2"))}, map[dataplane.View]string{dataplane.PreDNAT: table.OutsideFirst, dataplane.PostDNAT: table.OutsideOnly}[view]},
					{"a host endpoint", []*felix.ToDataplane{hostMessage("h", &felix.HostEndpoint{Name: "*", ProfileIds: []string{"open"}})}, table.OutsideFirst},
				} {
					s.send(step.msg...)
					s.settle(t)
					checked := mode != SourceOff
					s.checkOutsiders(t, n, checked)
					for _, iface := range []string{"uplink", "overlay", "host"} {
						in := s.b.lists[iface].GetInput()
						if has := len(in) > 0 && in[0] == step.first+map[string]string{"overlay": table.OverlaySuffix}[iface]; has != (checked && iface != "host") {
							t.Errorf("%s, %s: %s: input %v", view, step.what, iface, in)
						}
					}
				}
				if mode != SourceOff {
					if c, ok := s.r.Cause("uplink", false, 0, 0); !ok || !c.Denied || !strings.Contains(c.Text, "from outside") {
						t.Errorf("cause %+v %v", c, ok)
					}
				}
				s.send(&felix.ToDataplane{Payload: &felix.ToDataplane_HostEndpointRemove{HostEndpointRemove: &felix.HostEndpointRemove{Id: &felix.HostEndpointID{EndpointId: "h"}}}}, openPod(0))
				s.settle(t)
				for name := range s.b.acls {
					if strings.HasPrefix(name, table.OutsideOnly) || strings.HasPrefix(name, table.OutsideFirst) {
						t.Errorf("%s is left", name)
					}
				}
			}
		}
	}
}

// Without a host link the node's own processes reach pods from outside VPP, by the uplink.
func TestOutsideSourcesWithoutHostLink(t *testing.T) {
	for _, host := range []string{"", "uplink"} {
		n := testNode(dataplane.PostDNAT)
		n.Host = host
		s := newCheckedScene(n, SourceStrict)
		s.send(start()...)
		s.send(policyMessage(policyIDs[0], &felix.Policy{}), podMessage(0, withPolicies("a1", "")))
		s.settle(t)
		if p := (packet{nodeIPs[0], podIPs[0][match.V4], 6, 40000, 80}); !s.b.on("uplink", false, p) {
			t.Errorf("host %q: %s does not pass", host, p)
		}
		if p := (packet{podIPs[1][match.V4], podIPs[0][match.V4], 6, 40000, 80}); s.b.on("uplink", false, p) != (host == "uplink") {
			t.Errorf("host %q: %s passes: %v", host, p, host != "uplink")
		}
	}
}

// A new pod needs no interim state because of the check of packets from outside.
func TestOutsideSourcesNeedNoStateOnTheWay(t *testing.T) {
	n := testNode(dataplane.PostDNAT)
	n.Own = []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:1::/64")}
	fewer := n
	fewer.Interfaces = map[netip.Addr]string{podIPs[0][0]: "if-p1", podIPs[2][0]: "if-p3"}
	s := newCheckedScene(fewer, SourceStrict)
	s.send(start()...)
	s.send(setMessage("s1", felix.IPSetUpdate_NET, nil))
	s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcIpSetIds: []string{"s1"}}}}))
	s.send(podMessage(0, withPolicies("a1", "")))
	s.settle(t)
	writes := s.b.writes
	s.r.SetNode(n)
	s.send(openPod(1), deltaAdd("s1", "10.1.1.2/32"))
	if s.r.Apply() {
		t.Error("a new pod needs a state on the way")
	}
	if n := s.b.writes - writes; n > 8 {
		t.Errorf("%d writes for a new pod", n)
	}
}
