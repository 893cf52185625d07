package nodeports

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
)

const (
	// Table is the name of the table.
	Table = "contiv-node-ports"
	// nodePortsVersion changes whenever equal values become other rules.
	nodePortsVersion = 1
)

// addRules adds the rules of node ports to their table, for the link that leads to VPP. The node's address is replaced before the kernel routes, because it would
// take the packet, or drop it where it is the source; it returns after that. Nothing is tracked.
//
//	prerouting   from others, to a closed port of the node: dropped
//	             from others, to a served port of the node: the stand-in is the destination, and leads to VPP
//	             from VPP, from a served port of the node: the stand-in is the source
//	             ICMP errors about either: likewise
//	             from VPP, from the host address itself: what stands in for it is the source, so that the kernel takes or forwards the packet
//	output       from the node to a served port of itself: likewise, from the host address
//	postrouting  to VPP: the node's address is the destination, or the host address. To others: it is the source
//	input        to a process of the node: it is the source
func (o *nodePorts) addRules(c *nftables.Conn, table *nftables.Table, link string) {
	raw, mangle, filter := nftables.ChainPriorityRaw, nftables.ChainPriorityMangle, nftables.ChainTypeFilter
	in := chain{name: "in", kind: filter, hook: nftables.ChainHookPrerouting, priority: raw}
	own := chain{name: "own", kind: nftables.ChainTypeRoute, hook: nftables.ChainHookOutput, priority: raw}
	out := chain{name: "out", kind: filter, hook: nftables.ChainHookPostrouting, priority: mangle}
	local := chain{name: "local", kind: filter, hook: nftables.ChainHookInput, priority: mangle}
	for _, a := range o.addrs {
		f, served, closed := headerOf(a.node), portSets[served4], portSets[closed4]
		if a.node.Is6() {
			served, closed = portSets[served6], portSets[closed6]
		}
		toNode, fromNode := f.is(f.destination, a.node), f.is(f.source, a.node)
		toVPP := join(rule{&expr.Notrack{}}, f.replace(f.destination, a.standIn), rule{verdict(expr.VerdictAccept)})
		fromVPP := join(rule{&expr.Notrack{}}, f.replace(f.source, a.standIn), rule{verdict(expr.VerdictAccept)})
		in.rules = append(in.rules,
			join(notFrom(link), toNode, portIn(destinationPort, closed), rule{verdict(expr.VerdictDrop)}),
			join(notFrom(link), toNode, portIn(destinationPort, served), toVPP),
			join(notFrom(link), toNode, f.errorAbout(f.source, a.node), f.innerPortIn(served), toVPP),
			join(from(link), fromNode, f.is(f.destination, a.host), portIn(sourcePort, served), f.replace(f.destination, a.node)),
			join(from(link), fromNode, portIn(sourcePort, served), fromVPP),
			join(from(link), fromNode, ofProtocol(f.icmp), fromVPP))
		own.rules = append(own.rules,
			join(f.errorAbout(f.destination, a.standIn), f.setInner(f.destination, a.node)),
			join(fromNode, toNode, portIn(destinationPort, served), f.replace(f.source, a.host)),
			join(toNode, portIn(destinationPort, served), toVPP))
		out.rules = append(out.rules,
			join(to(link), f.is(f.destination, a.standIn), f.replace(f.destination, a.node), rule{verdict(expr.VerdictAccept)}),
			join(notTo(link), f.is(f.source, a.standIn), f.replace(f.source, a.node), rule{verdict(expr.VerdictAccept)}))
		local.rules = append(local.rules, join(f.is(f.source, a.standIn), f.replace(f.source, a.node)))
	}
	for _, r := range o.backs {
		f := headerOf(r.host)
		in.rules = append(in.rules, join(from(link), f.is(f.source, r.host), f.replace(f.source, r.standIn)))
		out.rules = append(out.rules,
			join(to(link), f.is(f.destination, r.standIn), f.errorAbout(f.source, r.standIn), f.setInner(f.source, r.host)),
			join(to(link), f.is(f.destination, r.standIn), f.replace(f.destination, r.host)))
	}
	n := 0
	for _, ch := range []chain{in, own, out, local} {
		made := c.AddChain(&nftables.Chain{Name: ch.name, Table: table, Type: ch.kind, Hooknum: ch.hook, Priority: ch.priority})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: made, Exprs: r})
			n++
		}
	}
	c.AddChain(&nftables.Chain{Name: linux.Mark(o.print, n), Table: table})
}

// replace writes an address, and corrects the checksum of IP and that of TCP, UDP or ICMPv6. The flag for the latter is not sent without another
// checksum (github.com/google/nftables v0.3.0), and IPv6's header has none: there it is a place in the address that is overwritten.
func (f header) replace(at uint32, a netip.Addr) rule {
	w := &expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: firstRegister, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: f.length,
		CsumType: expr.CsumTypeInet, CsumOffset: 10, CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
	}
	if a.Is6() {
		w.CsumOffset = at
	}
	return rule{&expr.Immediate{Register: firstRegister, Data: a.AsSlice()}, w}
}

// rule is a list of conditions and what follows from them.
type rule []expr.Any

// chain is a chain with its hook and rules.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
	rules    []rule
}

func join(parts ...rule) rule { return slices.Concat(parts...) }

func meta(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: firstRegister} }

func equal(data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: firstRegister, Data: data}
}

func verdict(kind expr.VerdictKind) expr.Any { return &expr.Verdict{Kind: kind} }

// header is the layout of the IP header of a family.
type header struct {
	family              byte
	source, destination uint32 // places of addresses
	length              uint32 // of an address
	upper, size         uint32 // place of the number of the protocol above, and length without options
	icmp                byte   // number of the family's ICMP
}

func headerOf(a netip.Addr) header {
	if a.Is4() {
		return header{unix.NFPROTO_IPV4, 12, 16, 4, 9, 20, unix.IPPROTO_ICMP}
	}
	return header{unix.NFPROTO_IPV6, 8, 24, 16, 6, 40, unix.IPPROTO_ICMPV6}
}

// is matches packets with an address at a place.
func (f header) is(at uint32, a netip.Addr) rule {
	return rule{
		meta(expr.MetaKeyNFPROTO), equal([]byte{f.family}),
		&expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: f.length}, equal(a.AsSlice()),
	}
}

func ofProtocol(number byte) rule { return rule{meta(expr.MetaKeyL4PROTO), equal([]byte{number})} }

// from, to and their opposites match packets by the link that they come from or leave by.
func from(link string) rule    { return named(expr.MetaKeyIIFNAME, expr.CmpOpEq, link) }
func notFrom(link string) rule { return named(expr.MetaKeyIIFNAME, expr.CmpOpNeq, link) }
func to(link string) rule      { return named(expr.MetaKeyOIFNAME, expr.CmpOpEq, link) }
func notTo(link string) rule   { return named(expr.MetaKeyOIFNAME, expr.CmpOpNeq, link) }

func named(key expr.MetaKey, op expr.CmpOp, link string) rule {
	return rule{meta(key), &expr.Cmp{Op: op, Register: 1, Data: append([]byte(link), 0)}}
}

// Places of ports in the headers of TCP, UDP and SCTP.
const sourcePort, destinationPort = 0, 2

// The registers for the elements of port sets: four bytes each.
const firstRegister, secondRegister = unix.NFT_REG_1, 9 // NFT_REG32_01: the next four bytes

// portIn matches packets whose protocol and port are in a set.
func portIn(place uint32, set string) rule {
	return rule{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstRegister},
		&expr.Payload{DestRegister: secondRegister, Base: expr.PayloadBaseTransportHeader, Offset: place, Len: 2},
		&expr.Lookup{SourceRegister: firstRegister, SetName: set},
	}
}

// An ICMP error has a header of eight bytes, and the packet that it is about.
const errorHeader = 8

// errorAbout matches ICMP errors about packets that have an address at a place.
func (f header) errorAbout(place uint32, a netip.Addr) rule {
	return join(ofProtocol(f.icmp), rule{
		&expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseTransportHeader, Offset: errorHeader + place, Len: f.length}, equal(a.AsSlice()),
	})
}

// innerPortIn matches ICMP errors about packets whose protocol and source port are in a set.
func (f header) innerPortIn(set string) rule {
	return rule{
		&expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseTransportHeader, Offset: errorHeader + f.upper, Len: 1},
		&expr.Payload{DestRegister: secondRegister, Base: expr.PayloadBaseTransportHeader, Offset: errorHeader + f.size + sourcePort, Len: 2},
		&expr.Lookup{SourceRegister: firstRegister, SetName: set},
	}
}

// setInner writes an address in the packet that an ICMP error is about. The checksum of ICMP does not change in IPv4, where the inner header has a
// checksum that makes up for the change.
func (f header) setInner(place uint32, a netip.Addr) rule {
	w := &expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: firstRegister, Base: expr.PayloadBaseTransportHeader, Offset: errorHeader + place, Len: f.length,
		CsumType: expr.CsumTypeInet, CsumOffset: 2,
	}
	if a.Is4() {
		w.CsumOffset = errorHeader + 10
	}
	return rule{&expr.Immediate{Register: firstRegister, Data: a.AsSlice()}, w}
}

// dropTable removes the table whether it exists or not: an addition of an existing table changes nothing.
func dropTable(c *nftables.Conn) {
	c.DelTable(c.AddTable(&nftables.Table{Name: Table, Family: nftables.TableFamilyINet}))
}
