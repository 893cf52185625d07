package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/enforce"
)

// trusted are the protocols whose source address is the sender's; 0 is any. nat44 gives packets of protocols it does not
// translate the node's address (24.06, nat44-ed-in2out-slowpath).
func (r *Renderer) trusted(f family) []uint8 {
	if r.view(f) == enforce.PreDNAT {
		return []uint8{protoTCP, protoUDP, f.icmp()}
	}
	return []uint8{0}
}

// view is what the input hook sees of a family.
func (r *Renderer) view(f family) enforce.View {
	if f == v4 {
		return r.node.View4
	}
	return r.node.View6
}

// nodeTable lets in what the node's own processes send. A NAT gives none of HostAddrs to others, so that every protocol counts; of the node's
// other addresses that holds where the input hook sees packets behind NAT. Where one address is both (a setting accepts that), only the
// protocols that NAT translates count.
func (r *Renderer) nodeTable() *table {
	t := &table{name: fromNode}
	own := &enforce.Cause{Kind: enforce.CauseStatic, Text: "addresses of the node itself"}
	for _, a := range r.ownSources() {
		protos := []uint8{0}
		if slices.Contains(r.node.Addrs, a) {
			protos = r.trusted(familyOf(a))
		}
		for _, proto := range protos {
			t.add(atom{src: netip.PrefixFrom(a, a.BitLen()), dst: familyOf(a).all(), proto: proto, sport: allPorts, dport: allPorts}, own)
		}
	}
	return t
}

// ownSources are the addresses from which the node's own processes reach its pods, and nobody else does; sorted.
func (r *Renderer) ownSources() []netip.Addr {
	out := slices.Clone(r.node.HostAddrs)
	for _, a := range r.node.Addrs {
		if r.view(familyOf(a)) == enforce.PostDNAT && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// poolTable denies what comes from addresses that NAT gives to others: a session that a dropped packet left gives such an address to who
// dials its backend directly (nat44_ed_not_translate, VPP 24.06 to 26.06), so that no policy may let it in. The protocols nat44 does not
// translate always have such an address, so that policies decide about those.
func (r *Renderer) poolTable() *table {
	t := &table{name: fromPool}
	cause := &enforce.Cause{Kind: enforce.CauseStatic, Denied: true, Text: "an address that NAT gives to others: the node's own processes reach pods from another"}
	for _, a := range r.node.Addrs {
		if r.view(familyOf(a)) == enforce.PostDNAT || slices.Contains(r.node.HostAddrs, a) {
			continue
		}
		for _, proto := range r.trusted(familyOf(a)) {
			t.add(atom{verb: deny, src: netip.PrefixFrom(a, a.BitLen()), dst: familyOf(a).all(), proto: proto, sport: allPorts, dport: allPorts}, cause)
		}
	}
	return t
}
