package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// trusted are the protocols whose source address is the sender's; 0 is any. nat44 gives packets of protocols it does not
// translate the node's address (24.06, nat44-ed-in2out-slowpath).
func (r *Renderer) trusted(f match.Family) []uint8 {
	if r.view(f) == dataplane.PreDNAT {
		return []uint8{match.TCP, match.UDP, f.ICMP()}
	}
	return []uint8{0}
}

// view is what the input hook sees of a family.
func (r *Renderer) view(f match.Family) dataplane.View {
	if f == match.V4 {
		return r.node.View4
	}
	return r.node.View6
}

// nodeTable permits packets of the node's own processes. NAT gives none of HostAddrs to other senders, so every protocol counts. For the
// node's other addresses that holds if the input hook sees packets behind NAT. If one address is both (a setting accepts that), only the
// protocols that NAT translates count.
func (r *Renderer) nodeTable() *table {
	t := &table{name: fromNode}
	own := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "addresses of the node itself"}
	for _, a := range r.ownSources() {
		protos := []uint8{0}
		if slices.Contains(r.node.Addrs, a) {
			protos = r.trusted(match.FamilyOf(a))
		}
		for _, proto := range protos {
			t.add(match.Atom{Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, own)
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
func (r *Renderer) hiddenTable() *table {
	t := &table{name: fromHidden}
	pool := r.pool()
	for _, a := range pool {
		t.add(match.Atom{Verb: match.Deny, Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, natGives())
	}
	for _, f := range match.Families {
		if !slices.ContainsFunc(pool, func(a netip.Addr) bool { return match.FamilyOf(a) == f }) {
			continue
		}
		for _, proto := range []uint8{match.SCTP, match.UDPLite} {
			cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "a protocol that nat44 does not translate: it hides who sends, and policies of the pod ask"}
			t.add(match.Atom{Verb: match.Deny, Src: f.All(), Dst: f.All(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause)
		}
	}
	return t
}

// pool returns the node's addresses that NAT gives to other senders.
func (r *Renderer) pool() (out []netip.Addr) {
	for _, a := range r.node.Addrs {
		if r.view(match.FamilyOf(a)) != dataplane.PostDNAT && !slices.Contains(r.node.HostAddrs, a) {
			out = append(out, a)
		}
	}
	return out
}

// asksPeers reports whether steps match source addresses.
func asksPeers(uses []use) bool {
	return slices.ContainsFunc(uses, func(u use) bool {
		return u.seg != nil && slices.ContainsFunc(u.seg.clauses, func(c match.Clause) bool {
			return slices.ContainsFunc(c.Matches, func(m *match.Match) bool { return !m.Src.AnyAddr() })
		})
	})
}

// ownSources returns the addresses from which only the node's own processes reach its pods; sorted.
func (r *Renderer) ownSources() []netip.Addr {
	out := slices.Clone(r.node.HostAddrs)
	for _, a := range r.node.Addrs {
		if r.view(match.FamilyOf(a)) == dataplane.PostDNAT && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// poolTable denies packets from addresses that NAT gives to other senders. The session that a dropped packet leaves gives such an address
// to a sender that dials its backend directly (nat44_ed_not_translate, VPP 24.06 to 26.06), so no policy may admit it. Policies decide
// about protocols that nat44 does not translate, if none of them matches the sender: see hiddenTable.
func (r *Renderer) poolTable() *table {
	t := &table{name: fromPool}
	for _, a := range r.pool() {
		for _, proto := range r.trusted(match.FamilyOf(a)) {
			t.add(match.Atom{Verb: match.Deny, Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, natGives())
		}
	}
	return t
}
