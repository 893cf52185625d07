package node

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Node is the state of the node.
type Node struct{ dataplane.Node }

// trusted are the protocols whose source address is the sender's; 0 is any. nat44 gives packets of protocols it does not
// translate the node's address (24.06, nat44-ed-in2out-slowpath).
func (n *Node) trusted(f match.Family) []uint8 {
	if n.View(f) == dataplane.PreDNAT {
		return []uint8{match.TCP, match.UDP, f.ICMP()}
	}
	return []uint8{0}
}

// View is what the input hook sees of a family.
func (n *Node) View(f match.Family) dataplane.View {
	if f == match.V4 {
		return n.View4
	}
	return n.View6
}

// nodeTable permits packets of the node's own processes. NAT gives none of HostAddrs to other senders, so every protocol counts. For the
// node's other addresses that holds if the input hook sees packets behind NAT. If one address is both (a setting accepts that), only the
// protocols that NAT translates count.
func (n *Node) nodeTable() *table.Table {
	t := &table.Table{Name: table.FromNode}
	own := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "addresses of the node itself"}
	for _, a := range n.OwnSources() {
		protos := []uint8{0}
		if slices.Contains(n.Addrs, a) {
			protos = n.trusted(match.FamilyOf(a))
		}
		for _, proto := range protos {
			t.Add(match.Atom{Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, own)
		}
	}
	return t
}

func natGives() *dataplane.Cause {
	return &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "an address that NAT gives to others: the node's own processes reach pods from another"}
}

// hiddenTable is poolTable for all protocols, and denies SCTP and UDP-Lite from every sender. Under nat44 each packet of a protocol that it does
// not translate has the address of a node or of a Service, regardless of its pod (nat44-ed-in2out-slowpath, VPP 24.06 to 26.06): no rule about
// peers can identify the sender.
func (n *Node) hiddenTable() *table.Table {
	t := &table.Table{Name: table.FromHidden}
	pool := n.pool()
	for _, a := range pool {
		t.Add(match.Atom{Verb: match.Deny, Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, natGives())
	}
	for _, f := range match.Families {
		if !slices.ContainsFunc(pool, func(a netip.Addr) bool { return match.FamilyOf(a) == f }) {
			continue
		}
		for _, proto := range []uint8{match.SCTP, match.UDPLite} {
			cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "a protocol that nat44 does not translate: it hides who sends, and policies of the pod ask"}
			t.Add(match.Atom{Verb: match.Deny, Src: f.All(), Dst: f.All(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause)
		}
	}
	return t
}

// pool returns the node's addresses that NAT gives to other senders.
func (n *Node) pool() (out []netip.Addr) {
	for _, a := range n.Addrs {
		if n.View(match.FamilyOf(a)) != dataplane.PostDNAT && !slices.Contains(n.HostAddrs, a) {
			out = append(out, a)
		}
	}
	return out
}

// OwnSources returns the addresses from which only the node's own processes reach its pods; sorted.
func (n *Node) OwnSources() []netip.Addr {
	out := slices.Clone(n.HostAddrs)
	for _, a := range n.Addrs {
		if n.View(match.FamilyOf(a)) == dataplane.PostDNAT && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// poolTable denies packets from addresses that NAT gives to other senders. The session that a dropped packet leaves gives such an address
// to a sender that dials its backend directly (nat44_ed_not_translate, VPP 24.06 to 26.06), so no policy may admit it. Policies decide
// about protocols that nat44 does not translate, if none of them matches the sender: see hiddenTable.
func (n *Node) poolTable() *table.Table {
	t := &table.Table{Name: table.FromPool}
	for _, a := range n.pool() {
		for _, proto := range n.trusted(match.FamilyOf(a)) {
			t.Add(match.Atom{Verb: match.Deny, Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, natGives())
		}
	}
	return t
}

// Exposure is a port of a pod that hidden clients reach.
type Exposure struct {
	Proto uint8
	Port  uint16
}

// Compare orders by protocol, then by port.
func (e Exposure) Compare(o Exposure) int {
	if e.Proto != o.Proto {
		return int(e.Proto) - int(o.Proto)
	}
	return int(e.Port) - int(o.Port)
}

// HairpinTable permits clients with the addresses of hairpins, except to some ports.
func (n *Node) HairpinTable(name string, but []Exposure) *table.Table {
	t := &table.Table{Name: name}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the pod itself, by way of a service"}
	for _, a := range n.Hairpin {
		for _, proto := range []uint8{match.TCP, match.UDP} {
			left := []match.Span{match.AllPorts}
			for _, e := range but {
				if e.Proto == proto {
					last := left[len(left)-1]
					left = append(left[:len(left)-1], last.Minus(match.Span{Lo: e.Port, Hi: e.Port})...)
				}
				if len(left) == 0 {
					break
				}
			}
			for _, ports := range left {
				t.Add(match.Atom{Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: ports}, cause)
			}
		}
	}
	return t
}

// OuterAtom matches the dialled address and port from src.
func OuterAtom(o *dataplane.Outer, v match.Verb, src netip.Prefix) match.Atom {
	return match.Atom{
		Verb: v, Src: src, Dst: netip.PrefixFrom(o.Addr, o.Addr.BitLen()), Proto: o.Proto, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: o.Port, Hi: o.Port},
	}
}

// TunnelTable permits the overlay's tunnel packets, whose ends VPP checks itself.
func (n *Node) TunnelTable() *table.Table {
	t := &table.Table{Name: table.Tunnels}
	if n.Overlay == "" || n.Overlay == n.Uplink {
		return t
	}
	const portVXLAN = 4789
	for _, a := range n.Addrs {
		dst := netip.PrefixFrom(a, a.BitLen())
		t.Add(match.Atom{Src: match.FamilyOf(a).All(), Dst: dst, Proto: match.UDP, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: portVXLAN, Hi: portVXLAN}}, &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the overlay"})
	}
	return t
}

// InwardTable has the destinations that are always open to the node: local pods, the node itself, addresses behind an overlay
// without a host endpoint and, where the input hook sees them, Services.
func (n *Node) InwardTable(atOverlay bool) *table.Table {
	t := &table.Table{Name: table.Inward, Egress: true}
	pod := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the node itself to its own pods"}
	service := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the node itself to a service"}
	addrs := slices.Concat(slices.Collect(maps.Keys(n.Interfaces)), n.Addrs)
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		t.Add(match.Atom{Src: match.FamilyOf(a).All(), Dst: netip.PrefixFrom(a, a.BitLen()), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, pod)
	}
	if n.Overlay != "" && n.Overlay != n.Uplink && !atOverlay {
		for _, dst := range n.Far {
			f := match.FamilyOf(dst.Addr())
			t.AddWide(match.Atom{Src: f.All(), Dst: dst.Masked(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the node itself by the overlay"}, n.ByteMatch6)
		}
	}
	for _, dst := range n.Frontends {
		for _, proto := range []uint8{match.TCP, match.UDP} {
			if f := match.FamilyOf(dst.Addr()); n.View(f) == dataplane.PreDNAT {
				t.AddWide(match.Atom{Src: f.All(), Dst: dst.Masked(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, service, n.ByteMatch6)
			}
		}
	}
	for k := range n.Outer {
		if f := match.FamilyOf(n.Outer[k].Addr); n.View(f) == dataplane.PreDNAT {
			t.Add(OuterAtom(&n.Outer[k], match.Allow, f.All()), service)
		}
	}
	return t
}

// OutgoingTable permits packets from the node's address: they were evaluated where they entered. An address of a link belongs to
// the link.
func (n *Node) OutgoingTable() *table.Table {
	t := &table.Table{Name: table.Outgoing, Egress: true}
	own := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the node itself, or masqueraded: evaluated where it entered"}
	for _, a := range n.Addrs {
		t.Add(match.Atom{Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, own)
	}
	t.Add(match.Atom{Src: netip.MustParsePrefix("fe80::/64"), Dst: match.V6.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "of the link"})
	return t
}

// addSelf appends the rules for a pod's packets to itself, where the input hook does not see Services.
func (n *Node) addSelf(t *table.Table, addrs []netip.Addr) {
	self := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the pod itself"}
	for _, a := range addrs {
		if addr := netip.PrefixFrom(a, a.BitLen()); n.View(match.FamilyOf(a)) == dataplane.PostDNAT {
			t.Add(match.Atom{Src: addr, Dst: addr, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, self)
		}
	}
}

// Tables returns the tables that depend on the node alone.
func (n *Node) Tables() (out []*table.Table) {
	input, output := &table.Table{Name: table.StaticIn}, &table.Table{Name: table.StaticOut}
	for _, t := range []*table.Table{input, output} {
		for _, typ := range []uint16{3, 11, 12} {
			t.Add(table.ICMPAtom(match.V4, typ), &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "ICMP errors"})
		}
		for _, typ := range []uint16{1, 2, 3, 4} {
			t.Add(table.ICMPAtom(match.V6, typ), &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "ICMP errors"})
		}
	}
	discovery := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "neighbour discovery"}
	for _, typ := range []uint16{133, 135, 136} {
		input.Add(table.ICMPAtom(match.V6, typ), discovery)
	}
	for _, typ := range []uint16{134, 135, 136} {
		output.Add(table.ICMPAtom(match.V6, typ), discovery)
	}
	out = append(out, n.HairpinTable(table.HairpinAll, nil), input, output, n.nodeTable(), n.poolTable(), n.hiddenTable(), lists.NoSCTPTable())
	for _, t := range []*table.Table{{Name: table.PermitEgress, Egress: true}, {Name: table.PermitIngress}, {Name: table.DenyAll}} {
		v := match.Allow
		if t.Name == table.DenyAll {
			v = match.Deny
		}
		for _, f := range match.Families {
			t.Add(match.Atom{Verb: v, Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: v == match.Deny})
		}
		out = append(out, t)
	}
	return out
}

// SelfTable is for packets to a pod from its addresses, without a Service in between.
func (n *Node) SelfTable(iface string, addrs []netip.Addr) *table.Table {
	t := &table.Table{Name: SelfName(iface)}
	n.addSelf(t, addrs)
	return t
}

// OwnTable is for packets that a pod may send because of its addresses: to itself and, where the input hook sees
// Services, to Services, which are evaluated where they lead.
func (n *Node) OwnTable(iface string, addrs []netip.Addr) *table.Table {
	t := &table.Table{Name: OwnName(iface), Egress: true}
	n.addSelf(t, addrs)
	service := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "services, which are evaluated where they lead"}
	for _, a := range addrs {
		src := netip.PrefixFrom(a, a.BitLen())
		if n.View(match.FamilyOf(a)) == dataplane.PostDNAT {
			continue
		}
		for _, dst := range n.Frontends {
			if match.FamilyOf(dst.Addr()) != match.FamilyOf(a) || dst.IsSingleIP() && slices.Contains(n.Addrs, dst.Addr()) {
				continue
			}
			for _, proto := range []uint8{match.TCP, match.UDP} {
				x := match.Expander{WholeBytes: n.ByteMatch6}
				for _, a := range x.Widen([]match.Atom{{Src: src, Dst: dst.Masked(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}}, 0) {
					t.Add(a, service)
				}
			}
		}
	}
	return t
}

// OwnName is the name of OwnTable.
func OwnName(iface string) string { return "own-" + table.NameOf(iface) }

// SelfName is the name of SelfTable.
func SelfName(iface string) string { return "self-" + table.NameOf(iface) }

// Early appends those of some addresses in the families whose Services the input hook sees.
func (n *Node) Early(out, addrs []netip.Addr) []netip.Addr {
	for _, a := range addrs {
		if n.View(match.FamilyOf(a)) == dataplane.PreDNAT {
			out = append(out, a)
		}
	}
	return out
}
