package acl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// Sources and destinations of packets.
var (
	pods    = []string{"p1", "p2", "p3", "p4"}
	podIPs  = [][]netip.Addr{addrs("10.1.1.1", "fd00:1::1"), addrs("10.1.1.2", "fd00:1::2"), addrs("10.1.1.3", "fd00:1::3"), addrs("10.1.1.4", "fd00:1::4")}
	remotes = addrs("10.1.2.1", "10.1.2.2", "8.8.8.8", "fd00:2::1", "fd00:2::2", "2001:db8::8")
	farNets = []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00:2::/64")}
	nodeIPs = addrs("192.168.0.1", "fd00:f::1")
	hairpin = addrs("10.1.1.254")
	nets    = strings.Fields("10.1.1.1/32 10.1.1.2/32 10.1.1.3/32 10.1.2.1/32 10.1.2.2/32 10.1.1.0/24 10.1.1.2/31 10.1.2.0/23 10.0.0.0/8 8.0.0.0/7 0.0.0.0/1 128.0.0.0/1 " +
		"fd00:1::1/128 fd00:1::2/128 fd00:1::/126 fd00:2::1/128 fd00:2::/63 fd00::/15 2001:db8::/32 fc00::/6 2001:d00::/24")
	endpoints = strings.Fields("10.1.1.1,tcp:80 10.1.1.2,tcp:80 10.1.1.2,udp:80 10.1.1.3,tcp:443 10.1.2.1,tcp:80 fd00:1::1,tcp:80 fd00:1::2,udp:443 fd00:2::1,tcp:443 8.8.8.8,udp:443 10.1.1.2,sctp:80 10.1.2.1,sctp:443 fd00:1::2,sctp:80")
	setNames  = []string{"s1", "s2", "s3", "s4"}
	portSets  = []string{"n1", "n2"}
	policyIDs = []*felix.PolicyID{{Tier: "a", Name: "a1"}, {Tier: "a", Name: "a2"}, {Tier: "b", Name: "b1"}, {Tier: "b", Name: "ns/staged:b2"}, {Tier: "b", Name: "b3"}}
	profIDs   = []string{"kns.x", "kns.y"}
)

func testNode(view dataplane.View) dataplane.Node {
	n := dataplane.Node{
		View4: view, View6: dataplane.PostDNAT, Interfaces: map[netip.Addr]string{}, Uplink: "uplink", Overlay: "overlay", Host: "host", Addrs: nodeIPs, HostAddrs: nodeIPs, Hairpin: hairpin,
		Frontends: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Far: farNets,
	}
	for i, list := range podIPs {
		for _, a := range list {
			n.Interfaces[a] = "if-" + pods[i]
			n.Own = append(n.Own, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return n
}

func pick[T any](t *rapid.T, label string, from []T) T { return rapid.SampledFrom(from).Draw(t, label) }

// some draws up to n elements of a pool, mostly none.
func some[T any](t *rapid.T, label string, pool []T, n int) []T {
	if rapid.IntRange(0, 3).Draw(t, label+"?") > 0 {
		return nil
	}
	var out []T
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(pool)-1), 1, n, rapid.ID[int]).Draw(t, label) {
		out = append(out, pool[i])
	}
	return out
}

func drawRule(t *rapid.T) *felix.Rule {
	r := &felix.Rule{Action: pick(t, "action", []string{"allow", "allow", "", "deny", "deny", "pass", "next-tier", "log"})}
	r.IpVersion = pick(t, "version", []felix.IPVersion{0, 0, 0, 4, 6})
	r.SrcNet, r.NotSrcNet = some(t, "srcnet", nets, 3), some(t, "notsrcnet", nets, 2)
	r.DstNet, r.NotDstNet = some(t, "dstnet", nets, 3), some(t, "notdstnet", nets, 2)
	r.SrcIpSetIds, r.NotSrcIpSetIds = some(t, "srcset", setNames, 2), some(t, "notsrcset", setNames, 1)
	r.DstIpSetIds, r.NotDstIpSetIds = some(t, "dstset", setNames, 2), some(t, "notdstset", setNames, 1)
	switch rapid.IntRange(0, 15).Draw(t, "l4") {
	case 0, 1, 2, 7, 8, 9:
		names := []string{"tcp", "udp", "TCP", "sctp"}
		r.Protocol = &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: pick(t, "proto", names)}}
		drawPorts(t, r)
	case 3:
		drawPorts(t, r)
	case 4:
		r.NotProtocol = &felix.Protocol{NumberOrName: &felix.Protocol_Number{Number: pick(t, "notproto", []int32{6, 17, 1, 47})}}
	case 5:
		r.Icmp = &felix.Rule_IcmpType{IcmpType: pick(t, "type", []int32{8, 128, 0})}
	case 6:
		r.NotIcmp = &felix.Rule_NotIcmpTypeCode{NotIcmpTypeCode: &felix.IcmpTypeAndCode{Type: pick(t, "type", []int32{8, 128}), Code: pick(t, "code", []int32{0, 1})}}
	}
	return r
}

func drawPorts(t *rapid.T, r *felix.Rule) {
	ranges := []*felix.PortRange{{First: 80, Last: 80}, {First: 443, Last: 443}, {First: 0, Last: 100}, {First: 80, Last: 1000}, {First: 1024, Last: 65535}}
	r.SrcPorts, r.NotSrcPorts = some(t, "sports", ranges, 2), some(t, "notsports", ranges, 2)
	r.DstPorts, r.NotDstPorts = some(t, "dports", ranges, 2), some(t, "notdports", ranges, 2)
	r.SrcNamedPortIpSetIds, r.NotSrcNamedPortIpSetIds = some(t, "snamed", portSets, 1), some(t, "notsnamed", portSets, 1)
	r.DstNamedPortIpSetIds, r.NotDstNamedPortIpSetIds = some(t, "dnamed", portSets, 2), some(t, "notdnamed", portSets, 1)
	r.DstIpPortSetIds = some(t, "ipports", portSets, 1)
}

func drawRules(t *rapid.T, label string, n int) []*felix.Rule {
	return rapid.SliceOfN(rapid.Custom(drawRule), 0, n).Draw(t, label)
}

// drawMessage is a message Felix could send in this world.
func drawMessage(t *rapid.T, w *world) *felix.ToDataplane {
	switch rapid.IntRange(0, 10).Draw(t, "message") {
	case 10:
		return drawHost(t)
	case 0:
		return setMessage(pick(t, "set", setNames), felix.IPSetUpdate_NET, some(t, "members", nets, 8))
	case 1:
		return setMessage(pick(t, "set", portSets), felix.IPSetUpdate_IP_AND_PORT, some(t, "members", endpoints, 8))
	case 2, 3, 4:
		id, pool := pick(t, "set", setNames), nets
		if rapid.Bool().Draw(t, "ports") {
			id, pool = pick(t, "set", portSets), endpoints
		}
		d := &felix.IPSetDeltaUpdate{Id: id}
		for _, m := range rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 1, 3, rapid.ID[string]).Draw(t, "members") {
			if slices.Contains(w.sets[id].GetMembers(), m) {
				d.RemovedMembers = append(d.RemovedMembers, m)
			} else {
				d.AddedMembers = append(d.AddedMembers, m)
			}
		}
		return &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}}
	case 5, 6:
		id := pick(t, "policy", policyIDs)
		if rapid.IntRange(0, 9).Draw(t, "remove") == 0 {
			return &felix.ToDataplane{Payload: &felix.ToDataplane_ActivePolicyRemove{ActivePolicyRemove: &felix.ActivePolicyRemove{Id: id}}}
		}
		return policyMessage(id, &felix.Policy{InboundRules: drawRules(t, "in", 3), OutboundRules: drawRules(t, "out", 3)})
	case 7:
		return profileMessage(pick(t, "profile", profIDs), &felix.Profile{InboundRules: drawRules(t, "in", 2), OutboundRules: drawRules(t, "out", 2)})
	}
	i := rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
	if rapid.IntRange(0, 9).Draw(t, "remove") == 0 {
		return &felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointRemove{WorkloadEndpointRemove: &felix.WorkloadEndpointRemove{Id: podID(pods[i])}}}
	}
	return podMessage(i, drawEndpoint(t))
}

func drawEndpoint(t *rapid.T) *felix.WorkloadEndpoint {
	e := &felix.WorkloadEndpoint{State: pick(t, "state", []string{"active", "active", "active", "active", "active", "inactive"})}
	e.ProfileIds = some(t, "profiles", profIDs, 2)
	if rapid.Bool().Draw(t, "open") {
		e.ProfileIds = []string{"open"}
	}
	for _, name := range []string{"a", "b"} {
		ti := &felix.TierInfo{Name: name, DefaultAction: pick(t, "default", []string{"", "Deny", "Pass"})}
		for _, id := range policyIDs {
			if id.GetTier() != name {
				continue
			}
			if rapid.IntRange(0, 2).Draw(t, "ingress") == 0 {
				ti.IngressPolicies = append(ti.IngressPolicies, id.GetName())
			}
			if rapid.IntRange(0, 2).Draw(t, "egress") == 0 {
				ti.EgressPolicies = append(ti.EgressPolicies, id.GetName())
			}
		}
		e.Tiers = append(e.Tiers, ti)
	}
	return e
}

func podID(name string) *felix.WorkloadEndpointID {
	return &felix.WorkloadEndpointID{OrchestratorId: "k8s", WorkloadId: name, EndpointId: "eth0"}
}

func podMessage(i int, e *felix.WorkloadEndpoint) *felix.ToDataplane {
	e.Ipv4Nets, e.Ipv6Nets = []string{podIPs[i][0].String() + "/32"}, []string{podIPs[i][1].String() + "/128"}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: &felix.WorkloadEndpointUpdate{Id: podID(pods[i]), Endpoint: e}}}
}

func setMessage(id string, typ felix.IPSetUpdate_IPSetType, members []string) *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetUpdate{IpsetUpdate: &felix.IPSetUpdate{Id: id, Type: typ, Members: members}}}
}

func policyMessage(id *felix.PolicyID, p *felix.Policy) *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &felix.ActivePolicyUpdate{Id: id, Policy: p}}}
}

func profileMessage(name string, p *felix.Profile) *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ActiveProfileUpdate{ActiveProfileUpdate: &felix.ActiveProfileUpdate{Id: &felix.ProfileID{Name: name}, Profile: p}}}
}

func inSync() *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_InSync{InSync: &felix.InSync{}}}
}

// start is the messages before the first drawn message.
func start() []*felix.ToDataplane {
	open := []*felix.Rule{{Action: "allow"}}
	out := []*felix.ToDataplane{inSync(), profileMessage("open", &felix.Profile{InboundRules: open, OutboundRules: open})}
	for _, id := range setNames {
		out = append(out, setMessage(id, felix.IPSetUpdate_NET, nil))
	}
	for _, id := range portSets {
		out = append(out, setMessage(id, felix.IPSetUpdate_IP_AND_PORT, nil))
	}
	return out
}

// all returns the messages that describe a world from scratch.
func (w *world) all() []*felix.ToDataplane {
	out := []*felix.ToDataplane{inSync()}
	for _, id := range slices.Sorted(maps.Keys(w.sets)) {
		out = append(out, &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetUpdate{IpsetUpdate: w.sets[id]}})
	}
	for _, key := range slices.Sorted(maps.Keys(w.policies)) {
		tier, name, _ := strings.Cut(key, "|")
		out = append(out, policyMessage(&felix.PolicyID{Tier: tier, Name: name}, w.policies[key]))
	}
	for _, name := range slices.Sorted(maps.Keys(w.profiles)) {
		out = append(out, profileMessage(name, w.profiles[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(w.eps)) {
		out = append(out, podMessage(slices.Index(pods, name), w.eps[name]))
	}
	for _, id := range slices.Sorted(maps.Keys(w.hosts)) {
		out = append(out, hostMessage(id, w.hosts[id]))
	}
	return out
}

// scene is a world, and a renderer that receives it.
type scene struct {
	w *world
	r *Renderer
	b *book
}

func newScene(n dataplane.Node) *scene { return newCheckedScene(n, SourceOff) }

// newCheckedScene has a source check.
func newCheckedScene(n dataplane.Node, mode SourceCheck) *scene {
	s := &scene{w: newWorld(), b: newBook()}
	s.r = New(Config{SourceCheck: mode}, s.b)
	s.r.SetNode(n)
	return s
}

// newTightScene has lists that must often be packed.
func newTightScene(n dataplane.Node, tight bool) *scene {
	return newTightCheckedScene(n, tight, SourceOff)
}

func newTightCheckedScene(n dataplane.Node, tight bool, mode SourceCheck) *scene {
	s := newCheckedScene(n, mode)
	if tight {
		s.r = New(Config{MaxACLs: 20, SourceCheck: mode}, s.b)
		s.r.SetNode(n)
	}
	return s
}

// modes are source checks to draw from.
var modes = []SourceCheck{SourceStrict, SourceAllowed, SourceOff}

// mosts is the most rules of an ACL: mostly the usual number, in some tests few.
var mosts = []int{table.MaxRules, table.MaxRules, table.MaxRules, 30}

func (s *scene) send(list ...*felix.ToDataplane) {
	for _, m := range list {
		s.w.take(m)
		s.r.OnUpdate(m)
	}
}

// settle applies until no change remains.
func (s *scene) settle(t interface{ Fatal(...any) }) {
	for range 4 {
		if !s.r.Apply() {
			return
		}
	}
	t.Fatal("Apply always wants to be called again")
}

// flows are packets of every kind between two addresses.
func flows(src, dst netip.Addr) []packet {
	out := []packet{{src, dst, 47, 0, 0}, {src, dst, 132, 0, 0}}
	for _, port := range []uint16{80, 443, 90, 8080} {
		out = append(out, packet{src, dst, 6, 40000, port}, packet{src, dst, 17, 80, port})
	}
	out = append(out, packet{src, dst, 132, 80, 443}, packet{src, dst, 132, 40000, 80})
	if src.Is4() {
		return append(out, packet{src, dst, 1, 8, 0}, packet{src, dst, 1, 8, 1}, packet{src, dst, 1, 0, 0})
	}
	return append(out, packet{src, dst, 58, 128, 0}, packet{src, dst, 58, 128, 1})
}

// ends returns all addresses of a family with their pods, "" for none.
func ends(f match.Family) (list []netip.Addr, pod map[netip.Addr]string) {
	pod = map[netip.Addr]string{}
	for i, ips := range podIPs {
		list = append(list, ips[f])
		pod[ips[f]] = pods[i]
	}
	for _, a := range append(slices.Clone(remotes), nodeIPs...) {
		if match.FamilyOf(a) == f {
			list = append(list, a)
		}
	}
	return list, pod
}

// each calls f for every pair and kind of packet, with their pods.
func each(f func(p packet, from, to string)) {
	for _, fam := range match.Families {
		list, pod := ends(fam)
		for _, src := range list {
			for _, dst := range list {
				if src == dst || pod[src]+pod[dst] == "" {
					continue
				}
				for _, p := range flows(src, dst) {
					f(p, pod[src], pod[dst])
				}
			}
		}
	}
}

// sends returns the verdict for packets that an endpoint sends: its egress, and that of the host endpoint where they leave.
func (w *world) sends(e *felix.WorkloadEndpoint, p packet) bool {
	return w.allows(e, true, p) && w.forwards(p)
}

// forwards is the verdict of the host endpoint where a packet leaves that is not for local pods.
func (w *world) forwards(p packet) bool {
	out := leavesBy(p.dst)
	return out == "host" || out == "" || w.hostAllows(w.hostAt(out), true, false, p)
}

// wanted is the verdict of the policies themselves.
func (w *world) wanted(p packet, from, to string, view dataplane.View) bool {
	if from != "" && (w.eps[from] == nil || !w.sends(w.eps[from], p)) || from == "" && !w.forwards(p) {
		return false
	}
	trusted := view == dataplane.PostDNAT || p.translated() || p.proto == match.FamilyOf(p.src).ICMP()
	return to == "" || trusted && slices.Contains(nodeIPs, p.src) || w.eps[to] != nil && w.allows(w.eps[to], false, p)
}

// got is the verdict of the lists for a packet that is dialled as it arrives.
func (b *book) got(p packet, from, to string) bool {
	return (from == "" || b.on("if-"+from, false, p)) && b.leaves(p, from, to)
}

func (b *book) on(iface string, output bool, p packet) bool {
	ok, _, _ := b.passes(iface, output, p)
	begins, _ := b.begins(iface, output, p)
	return ok && begins
}

// leaves is the verdict where a packet leaves VPP.
func (b *book) leaves(p packet, from, to string) bool {
	if to != "" {
		return b.on("if-"+to, true, p)
	}
	return b.on(leavesBy(p.dst), true, p)
}

// leavesBy returns the interface to addresses that are not a local pod's; "" to a local pod.
func leavesBy(dst netip.Addr) string {
	switch {
	case slices.Contains(nodeIPs, dst):
		return "host"
	case slices.ContainsFunc(farNets, func(n netip.Prefix) bool { return n.Contains(dst) }):
		return "overlay"
	case slices.ContainsFunc(podIPs, func(list []netip.Addr) bool { return slices.Contains(list, dst) }), slices.Contains(hairpin, dst):
		return ""
	}
	return "uplink"
}

// masqueraded returns the verdict for a packet that gets the node's address where it leaves.
func (b *book) masqueraded(p packet, from string) bool {
	leaving := p
	leaving.src = nodeIPs[match.FamilyOf(p.src)]
	return b.on("if-"+from, false, p) && b.on("uplink", true, leaving)
}

// gotByService returns the verdict for a packet that a pod dialled at a Service's address, where the input hook sees that.
func (b *book) gotByService(p packet, from, to string) bool {
	dialled := p
	dialled.dst, dialled.dport = netip.MustParseAddr("10.96.0.10"), 8081
	return b.on("if-"+from, false, dialled) && b.leaves(p, from, to)
}

// Lists give the verdicts of the policies, in both views, for every dialled address.
func TestVerdicts(t *testing.T) {
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		t.Run(view.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := testNode(view)
				n.ByteMatch6 = rapid.Bool().Draw(t, "bytes")
				s := newTightCheckedScene(n, rapid.Bool().Draw(t, "tight"), pick(t, "sources", modes))
				s.r.pods.Segs.Most = pick(t, "most", mosts)
				s.send(start()...)
				for range rapid.IntRange(1, 25).Draw(t, "steps") {
					s.send(drawMessage(t, s.w))
				}
				s.settle(t)
				s.check(t)
			})
		})
	}
}

// withoutSCTP reports that no SCTP passes a pod's interface, because policies restrict the other direction and no filter exists.
func (s *scene) withoutSCTP(pod string, output bool) bool {
	list, other := s.b.lists["if-"+pod].GetInput(), s.b.lists["if-"+pod].GetOutput()
	if output {
		list, other = other, list
	}
	probe := packet{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("203.0.113.8"), match.SCTP, 0, 0}
	return s.b.ports["if-"+pod] == nil && len(list) > 0 && len(other) > 0 && !s.b.on("if-"+pod, output, probe)
}

// fronted reports that a pod's SCTP does not reach a node's address, because nat44 may hide a pod there and the pod's policies treat destinations differently.
func (s *scene) fronted(pod string, dst netip.Addr) bool {
	return s.r.pods.Node.View(match.V4) == dataplane.PreDNAT && dst == nodeIPs[match.V4] && slices.Contains(s.b.lists["if-"+pod].GetInput(), table.NodeFronts)
}

// excused reports that a packet is denied, and that a note says what could not be rendered.
func (s *scene) excused(got bool) bool { return !got && len(s.b.notes) > 0 }

func (s *scene) check(t *rapid.T) {
	each(func(p packet, from, to string) {
		want, got := s.w.wanted(p, from, to, s.r.pods.Node.View(match.FamilyOf(p.src))), s.b.got(p, from, to)
		if s.excused(got) || !got && p.proto == match.SCTP && (s.withoutSCTP(from, false) || s.withoutSCTP(to, true) || s.fronted(from, p.dst)) {
			return
		}
		if want != got {
			t.Fatalf("%s from %q to %q: want %v got %v\n%s", p, from, to, want, got, s)
		}
		if got := from != "" && s.b.masqueraded(p, from); from != "" && to == "" && leavesBy(p.dst) == "uplink" && got != want {
			t.Fatalf("%s from %q, masqueraded: want %v got %v\n%s", p, from, want, got, s)
		}
		if from != "" && p.proto == match.SCTP && p.dst == nodeIPs[match.V4] && got && s.r.pods.Node.View(match.V4) == dataplane.PreDNAT {
			for _, dst := range remotes { // nat44 may hide any of them behind the node
				other := p
				if other.dst = dst; dst.Is4() && !s.w.allows(s.w.eps[from], true, other) {
					t.Fatalf("%s from %q passes, %s does not\n%s", p, from, other, s)
				}
			}
		}
		if from == "" || !p.translated() || s.r.pods.Node.View(match.FamilyOf(p.src)) == dataplane.PostDNAT {
			return
		}
		if got := s.b.gotByService(p, from, to); want != got {
			t.Fatalf("%s by a service from %q to %q: want %v got %v\n%s", p, from, to, want, got, s)
		}
	})
}

func (s *scene) String() string {
	var b strings.Builder
	for _, m := range s.w.all() {
		fmt.Fprintln(&b, m)
	}
	for _, name := range slices.Sorted(maps.Keys(s.b.lists)) {
		fmt.Fprintln(&b, s.b.lists[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.b.ports)) {
		fmt.Fprintln(&b, s.b.ports[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.b.acls)) {
		fmt.Fprintln(&b, s.b.acls[name])
	}
	return b.String()
}

// Every history of the world gives the same output.
func TestPathIndependence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := testNode(pick(t, "view", []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT}))
		tight := rapid.Bool().Draw(t, "tight")
		mode := pick(t, "sources", modes)
		s, most := newTightCheckedScene(n, tight, mode), pick(t, "most", mosts)
		s.r.pods.Segs.Most = most
		s.send(start()...)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			s.send(drawMessage(t, s.w))
			if rapid.Bool().Draw(t, "apply") {
				s.r.Apply()
			}
		}
		s.settle(t)
		fresh := newTightCheckedScene(n, tight, mode)
		fresh.r.pods.Segs.Most = most
		fresh.send(s.w.all()...)
		fresh.settle(t)
		if !maps.EqualFunc(fresh.b.acls, s.b.acls, func(a, b *vppacl.ACL) bool { return proto.Equal(a, b) }) {
			t.Fatalf("tables: -from scratch +step by step\n%s", cmp.Diff(fresh.b.acls, s.b.acls, protocmp.Transform()))
		}
		if !maps.EqualFunc(fresh.b.lists, s.b.lists, func(a, b *contivacl.InterfaceACLs) bool { return proto.Equal(a, b) }) {
			t.Fatalf("lists: -from scratch +step by step\n%s", cmp.Diff(fresh.b.lists, s.b.lists, protocmp.Transform()))
		}
		if diff := cmp.Diff(fresh.b.ports, s.b.ports, protocmp.Transform()); diff != "" {
			t.Fatalf("ports of SCTP: -from scratch +step by step\n%s", diff)
		}
		if diff := cmp.Diff(fresh.b.notes, s.b.notes); diff != "" {
			t.Fatalf("notes: -from scratch +step by step\n%s", diff)
		}
		before := s.b.writes
		s.r.Apply()
		if s.b.writes != before {
			t.Fatal("an Apply without news writes")
		}
	})
}
