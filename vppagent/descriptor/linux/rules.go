package linux

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	Table      = "contiv" // name of our tables
	MarkPrefix = "made-"  // see Fingerprint
)

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

// ruleTable is one of our tables.
type ruleTable struct {
	family nftables.TableFamily
	mark   string
	chains []chain
}

func (t *ruleTable) addTo(c *nftables.Conn) {
	to := c.AddTable(&nftables.Table{Name: Table, Family: t.family})
	n := 0
	for _, ch := range t.chains {
		in := c.AddChain(&nftables.Chain{Name: ch.name, Table: to, Type: ch.kind, Hooknum: ch.hook, Priority: ch.priority})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: to, Chain: in, Exprs: r})
			n++
		}
	}
	c.AddChain(&nftables.Chain{Name: Mark(t.mark, n), Table: to})
}

// Fingerprint returns the fingerprint in the mark of a table, which is the name of an empty chain: "made-", the fingerprint of the value, and the number
// of rules. "": the table is not as the agent made it.
func Fingerprint(c *nftables.Conn, family nftables.TableFamily, name string) (print string, exists bool, err error) {
	chains, err := c.ListChainsOfTableFamily(family)
	if err != nil {
		return "", false, Wrap("list the chains of the packet filter", err)
	}
	rules, mark := 0, ""
	for _, chain := range chains {
		if chain.Table.Name != name {
			continue
		}
		exists = true
		if text, is := strings.CutPrefix(chain.Name, MarkPrefix); is {
			mark = text
		}
		list, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return "", false, Wrap("list the rules of the packet filter", err)
		}
		rules += len(list)
	}
	if print, count, _ := strings.Cut(mark, "-"); count == strconv.Itoa(rules) {
		return print, exists, nil
	}
	return "", exists, nil
}

// Mark is the name of the empty chain with a fingerprint and the number of rules.
func Mark(print string, rules int) string { return fmt.Sprintf("%s%s-%d", MarkPrefix, print, rules) }

// tables returns the rules, for the link that leads to VPP and the link with packets to be refused; "": none.
//
//	prerouting, before conntrack   packets from VPP's links are dropped: VPP has them
//	                               tunnel's packets for the node's address get VPP's address, without conntrack
//	                               packets to be refused are
//	postrouting                    tunnel's packets of VPP get the node's address
//	                               other packets of pods that leave by another link get the node's address (masquerade)
//	                               connections to host ports get a source by which VPP returns the answers (detours)
//	output                         nothing is sent by VPP's links
func (o *handover) tables(link, refuse string) []*ruleTable {
	t := &ruleTable{family: nftables.TableFamilyINet, mark: o.print}
	arp := &ruleTable{family: nftables.TableFamilyARP, mark: o.print}
	raw, filter := nftables.ChainPriorityRaw, nftables.ChainTypeFilter
	in := chain{name: "from-vpp-links", kind: filter, hook: nftables.ChainHookPrerouting, priority: raw}
	out := chain{name: "to-vpp-links", kind: filter, hook: nftables.ChainHookOutput, priority: raw}
	var names [][]byte
	for _, begin := range o.links {
		names = append(names, []byte(begin))
	}
	for _, name := range o.devices {
		names = append(names, append([]byte(name), 0))
	}
	for _, name := range names {
		in.rules = append(in.rules, rule{meta(expr.MetaKeyIIFNAME), equal(name), verdict(expr.VerdictDrop)})
		out.rules = append(out.rules, rule{meta(expr.MetaKeyOIFNAME), equal(name), verdict(expr.VerdictDrop)})
	}
	arpIn, arpOut := in, out
	arpIn.hook, arpIn.priority, arpOut.hook, arpOut.priority = arpHookInput, nftables.ChainPriorityFilter, arpHookOutput, nftables.ChainPriorityFilter
	arp.chains = []chain{arpIn, arpOut}
	back := chain{name: "tunnels-out", kind: filter, hook: nftables.ChainHookPostrouting, priority: nftables.ChainPriorityMangle}
	for _, u := range o.tunnels {
		f := fieldsOf(u.node)
		in.rules = append(in.rules,
			join(f.is(f.destination, u.node), f.udpTo(u.port), rule{&expr.Notrack{}}, f.set(f.destination, u.vpp), rule{verdict(expr.VerdictAccept)}),
			join(f.is(f.source, u.vpp), f.udpTo(u.port), rule{&expr.Notrack{}, verdict(expr.VerdictAccept)}))
		back.rules = append(back.rules, join(f.is(f.source, u.vpp), f.udpTo(u.port), f.set(f.source, u.node), rule{verdict(expr.VerdictAccept)}))
	}
	if refuse != "" {
		in.rules = append(in.rules, refuseFrom(refuse)...)
	}
	masquerade := chain{name: "pods-out", kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPostrouting, priority: nftables.ChainPriorityNATSource}
	for _, p := range o.exempt {
		f := fieldsOf(p.Addr())
		masquerade.rules = append(masquerade.rules, join(f.in(f.destination, p), rule{verdict(expr.VerdictAccept)}))
	}
	for _, p := range o.masquerade {
		f := fieldsOf(p.Addr())
		masquerade.rules = append(masquerade.rules, join(
			rule{meta(expr.MetaKeyOIFNAME), &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: append([]byte(link), 0)}}, f.in(f.source, p), rule{&expr.Masq{}}))
	}
	masquerade.rules = append(masquerade.rules, o.detourRules(link)...)
	t.chains = []chain{in, out, back, masquerade}
	return []*ruleTable{t, arp}
}

// detourRules give another source to translated connections of others that leave by the link to VPP.
func (o *handover) detourRules(link string) (out []rule) {
	const translated = 1 << 5 // IPS_DST_NAT (linux/netfilter/nf_conntrack_common.h)
	status := rule{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, translated), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
	// A process of the node has an address to which VPP returns answers by the link.
	foreign := rule{
		&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagSADDR: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)},
	}
	for _, d := range o.detours {
		f := fieldsOf(d.address)
		for _, p := range d.sources {
			out = append(out, join(rule{meta(expr.MetaKeyOIFNAME), equal(append([]byte(link), 0))}, f.in(f.source, p), status, foreign, rule{
				&expr.Immediate{Register: 1, Data: d.address.AsSlice()}, &expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(f.family), RegAddrMin: 1},
			}))
		}
	}
	return out
}

// Hooks of the family ARP (linux/netfilter_arp.h).
var (
	arpHookInput  = nftables.ChainHookRef(unix.NF_INET_PRE_ROUTING) // NF_ARP_IN
	arpHookOutput = nftables.ChainHookRef(unix.NF_INET_LOCAL_IN)    // NF_ARP_OUT
)

func join(parts ...rule) (out rule) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func meta(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: 1} }

// equal compares as many bytes as data has: of a name, its beginning.
func equal(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

func verdict(kind expr.VerdictKind) expr.Any { return &expr.Verdict{Kind: kind} }

// portOf matches a destination port of a transport protocol.
func portOf(protocol byte, port uint16) rule {
	return rule{
		meta(expr.MetaKeyL4PROTO), equal([]byte{protocol}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, equal(binary.BigEndian.AppendUint16(nil, port)),
	}
}

// fields are the places of fields in the header of a family.
type fields struct {
	family              byte
	source, destination uint32
	length              uint32 // of an address
	protocol            uint32 // of what follows the header
	checksum            uint32 // the one that depends on addresses: of the header, or of UDP where the header has none
	pseudo              uint32 // flags: UDP's checksum depends on addresses, too
}

func fieldsOf(a netip.Addr) fields {
	if a.Is4() {
		return fields{family: unix.NFPROTO_IPV4, source: 12, destination: 16, length: 4, protocol: 9, checksum: 10, pseudo: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR}
	}
	return fields{family: unix.NFPROTO_IPV6, source: 8, destination: 24, length: 16, protocol: 6, checksum: 40 + 6}
}

// udpTo matches a destination port of UDP, directly behind the header.
func (f fields) udpTo(port uint16) rule {
	direct := rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.protocol, Len: 1}, equal([]byte{unix.IPPROTO_UDP}),
	}
	return join(direct, portOf(unix.IPPROTO_UDP, port))
}

func (f fields) load(at uint32) rule {
	return rule{
		meta(expr.MetaKeyNFPROTO), equal([]byte{f.family}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: f.length},
	}
}

func (f fields) is(at uint32, a netip.Addr) rule { return append(f.load(at), equal(a.AsSlice())) }

func (f fields) in(at uint32, p netip.Prefix) rule {
	mask := make([]byte, f.length)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return append(f.load(at), &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.length, Mask: mask, Xor: make([]byte, f.length)}, equal(p.Masked().Addr().AsSlice()))
}

// set writes an address, and corrects the checksums of IP and UDP. The flag for UDP's is not sent without another checksum
// (github.com/google/nftables v0.3.0), and IPv6 has none: there, UDP's is the other one.
func (f fields) set(at uint32, a netip.Addr) rule {
	return rule{&expr.Immediate{Register: 1, Data: a.AsSlice()}, &expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: f.length,
		CsumType: expr.CsumTypeInet, CsumOffset: f.checksum, CsumFlags: f.pseudo,
	}}
}
