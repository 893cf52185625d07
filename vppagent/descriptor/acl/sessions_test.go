package acl

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// randomGroup returns rules for the same addresses.
func randomGroup(r *rand.Rand, n byte) (out []acl_types.ACLRule) {
	for range 1 + r.IntN(3) {
		port := uint16(r.IntN(4))
		rule := acl_types.ACLRule{
			IsPermit: acl_types.ACLAction(r.IntN(3)), Proto: []ip_types.IPProto{0, 1, 6, 17, 58, 132}[r.IntN(6)], SrcportOrIcmptypeLast: maxPort,
			DstportOrIcmpcodeFirst: port, DstportOrIcmpcodeLast: port + uint16(r.IntN(3)),
		}
		if rule.Proto == 1 || rule.Proto == 58 {
			rule.SrcportOrIcmptypeFirst = []uint16{0, 8, 128}[r.IntN(3)]
			rule.SrcportOrIcmptypeLast = rule.SrcportOrIcmptypeFirst
		}
		if r.IntN(3) == 0 {
			rule.TCPFlagsMask, rule.TCPFlagsValue = tcpSYN|tcpACK, tcpSYN
		}
		out = append(out, rule)
	}
	return between(out, netip.AddrFrom4([4]byte{10, 1, 1, n}))
}

// between returns a copy of rules, from one address.
func between(rules []acl_types.ACLRule, a netip.Addr) (out []acl_types.ACLRule) {
	for _, r := range rules {
		r.SrcPrefix, r.DstPrefix = descriptor.ToPrefix(netip.PrefixFrom(a, a.BitLen())), descriptor.ToPrefix(any4())
		if a.Is6() {
			r.DstPrefix = descriptor.ToPrefix(any6())
		}
		out = append(out, r)
	}
	return out
}

// The meaning of rules is the union of the meanings of its groups, in each of which a rule applies to what the earlier ones leave. Equal
// groups, of one family or of both, change nothing.
func TestMeaningIsUnionOfGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for i := range 2000 {
		var all []acl_types.ACLRule
		want := &sessions{reflect: map[box]struct{}{}, permit: map[box]struct{}{}}
		group := randomGroup(r, 1)
		for n := range byte(1 + r.IntN(8)) {
			switch r.IntN(4) {
			case 0:
				group = randomGroup(r, n)
			case 1:
				group = between(group, netip.AddrFrom16([16]byte{0: 0xfd, 15: n}))
			default:
				group = between(group, netip.AddrFrom4([4]byte{10, 1, 1, n}))
			}
			all = append(all, group...)
			if !want.addGroup(group) {
				t.Fatal("too many boxes for this test")
			}
		}
		if diff := cmp.Diff(want, sessionsOf(all), cmp.AllowUnexported(sessions{}, box{}, ports{})); diff != "" {
			t.Fatalf("case %d, %+v (- each group, + all):\n%s", i, all, diff)
		}
	}
}

// Boxes that are outside others do not meet these, and together with these cover what was covered before.
func TestRemainder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	span := func() ports {
		first := uint16(r.IntN(8))
		return ports{first, first + uint16(r.IntN(4))}
	}
	boxes := func() (out []box) {
		for range r.IntN(4) {
			out = append(out, box{class(r.IntN(2)), span(), span()})
		}
		return out
	}
	has := func(list []box, p box) bool {
		for _, b := range list {
			if b.meets(p) {
				return true
			}
		}
		return false
	}
	for range 2000 {
		list, others := boxes(), boxes()
		left := remainder(list, others)
		for c := range class(2) {
			for s := range uint16(12) {
				for d := range uint16(12) {
					p := box{c, ports{s, s}, ports{d, d}}
					if want := has(list, p) && !has(others, p); has(left, p) != want {
						t.Fatalf("%v without %v is %v: %v is in it, want %t", list, others, left, p, want)
					}
				}
			}
		}
	}
}
