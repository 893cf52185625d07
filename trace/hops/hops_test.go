package hops

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/hop"
)

func header(src, dst string, port uint16, ttl uint8) hop.Header {
	return hop.Header{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: model.TCP, SrcPort: 4000, DstPort: port, TTL: ttl}
}

func none(*hop.Hop) *flows.Decision { return nil }

func TestLastNodeOfNAT44HasTheTranslation(t *testing.T) {
	dialled, translated := header("10.1.1.2", "10.96.0.10", 80, 64), header("10.1.1.2", "10.1.1.3", 8080, 64)
	list := Of("node-1", []hop.Hop{
		{Node: "ip4-input", Received: "pod-a/b", Left: dialled},
		{Node: "nat44-ed-out2in", Text: "slow path: no session", Left: translated},
		{Node: "nat44-ed-out2in-slowpath", Text: "dnat 10.1.1.3:8080", Left: translated},
	}, none)
	if list[1].Translation != nil {
		t.Errorf("the first node of NAT44 has a translation: %+v", list[1].Translation)
	}
	want := Translation{headerOf(dialled), headerOf(translated)}
	if got := list[2].Translation; got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTTLIsNoTranslation(t *testing.T) {
	list := Of("node-1", []hop.Hop{
		{Node: "ip6-input", Received: "x", Left: header("fd00::1", "fd00::2", 80, 64)},
		{Node: "cnat-snat-ip6", Left: header("fd00::1", "fd00::2", 80, 63)},
	}, none)
	if list[1].Kind != CNAT || list[1].Translation != nil {
		t.Errorf("got %+v", list[1])
	}
}

// TestNamesOfInterfacesAreNoKinds: the name of a pod, which any tenant chooses, is part of the name of a graph node.
func TestNamesOfInterfacesAreNoKinds(t *testing.T) {
	for _, tc := range []struct {
		hop  hop.Hop
		want Kind
	}{
		{hop.Hop{Node: "nat44-ed-tx", Sent: "nat44-ed"}, Output},
		{hop.Hop{Node: "ip4-cnat-tx", Sent: "ip4-cnat"}, Output},
		{hop.Hop{Node: "pod-a/cnat-tx"}, Other},
		{hop.Hop{Node: "ip4-cnat-tx"}, CNAT},
		{hop.Hop{Node: "ip4-lookup"}, Lookup},
		{hop.Hop{Node: "acl-plugin-in-ip4-fa", ACL: &hop.ACLMatch{}}, AccessList},
		{hop.Hop{Node: "ip4-inacl", Classify: &hop.ClassifyMatch{}}, Classifier},
	} {
		if got := kindOf(&tc.hop); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.hop.Node, got, tc.want)
		}
	}
}
