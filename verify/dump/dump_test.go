package dump

import (
	"net/netip"
	"testing"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// TestRulesMatchAsInVPP compares rules as they are read with what VPP's ACL plugin does (24.06 to 26.06).
func TestRulesMatchAsInVPP(t *testing.T) {
	a, b := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	tcp := space.Header{Src: a, Dst: b, Protocol: space.TCP, SrcPort: 40000, DstPort: 80, Flags: space.SYN}
	answer := space.Header{Src: a, Dst: b, Protocol: space.TCP, SrcPort: 40000, DstPort: 80, Flags: space.SYN | space.ACK}
	gre := space.Header{Src: a, Dst: b, Protocol: 47}
	echo := space.Header{Src: a, Dst: b, Protocol: space.ICMP, SrcPort: 8}
	rule := func(change func(*acl_types.ACLRule)) acl_types.ACLRule {
		r := acl_types.ACLRule{
			IsPermit:  1,
			SrcPrefix: descriptor.ToPrefix(netip.MustParsePrefix("10.1.1.0/24")), DstPrefix: descriptor.ToPrefix(netip.MustParsePrefix("0.0.0.0/0")),
			SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535,
		}
		change(&r)
		return r
	}
	for name, tc := range map[string]struct {
		rule    acl_types.ACLRule
		matches []space.Header
	}{
		"any":                              {rule(func(*acl_types.ACLRule) {}), []space.Header{tcp, answer, gre, echo}},
		"any protocol, ports not compared": {rule(func(r *acl_types.ACLRule) { r.DstportOrIcmpcodeLast = 0 }), []space.Header{tcp, answer, gre, echo}},
		"other source":                     {rule(func(r *acl_types.ACLRule) { r.SrcPrefix = descriptor.ToPrefix(netip.MustParsePrefix("10.1.2.0/24")) }), nil},
		"SYN": {rule(func(r *acl_types.ACLRule) {
			r.Proto, r.TCPFlagsMask, r.TCPFlagsValue = ip_types.IP_API_PROTO_TCP, 0x12, 2
		}), []space.Header{tcp}},
		"port": {rule(func(r *acl_types.ACLRule) {
			r.Proto, r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast = ip_types.IP_API_PROTO_TCP, 80, 80
		}), []space.Header{tcp, answer}},
		"other port": {rule(func(r *acl_types.ACLRule) {
			r.Proto, r.DstportOrIcmpcodeFirst = ip_types.IP_API_PROTO_TCP, 81
		}), nil},
		"type": {rule(func(r *acl_types.ACLRule) {
			r.Proto, r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast = ip_types.IP_API_PROTO_ICMP, 8, 8
		}), []space.Header{echo}},
		"portless protocol, port 0": {rule(func(r *acl_types.ACLRule) {
			r.Proto, r.SrcportOrIcmptypeLast, r.DstportOrIcmpcodeLast = ip_types.IP_API_PROTO_GRE, 0, 0
		}), []space.Header{gre}},
		"portless protocol, port 1": {rule(func(r *acl_types.ACLRule) {
			r.Proto, r.DstportOrIcmpcodeFirst = ip_types.IP_API_PROTO_GRE, 1
		}), nil},
	} {
		l := newList(&acl.ACLDetails{ACLIndex: 3, Tag: "ca1:a:ABCDEFGH:web", R: []acl_types.ACLRule{tc.rule}})
		if l.Name != "web" || l.Text(0) == "" {
			t.Errorf("%s: list %q of %+v", name, l.Name, l)
		}
		s := space.New()
		d := s.List(l.Space)
		for _, h := range []space.Header{tcp, answer, gre, echo} {
			want := uint8(0)
			for _, m := range tc.matches {
				if m == h {
					want = Permit
				}
			}
			if got := s.Verdict(d, h); got != want {
				t.Errorf("%s: verdict %d about %s, want %d", name, got, h, want)
			}
		}
	}
}

func TestTags(t *testing.T) {
	s := &State{Interfaces: map[uint32]*Interface{1: {Tag: "prod/web-1"}, 2: {Tag: "prod/web"}, 3: {Tag: "prod/db-eth0"}}}
	for pod, want := range map[string]uint32{"prod/web": 2, "prod/web-1": 1, "prod/db": 3, "prod/d": 0} {
		if got, _ := s.Tagged(pod); got != want {
			t.Errorf("%s: interface %d, want %d", pod, got, want)
		}
	}
}
