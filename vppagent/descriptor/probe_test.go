package descriptor

import (
	"errors"
	"testing"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

func said(text string) vpp.Reply { return vpp.Reply{Msg: &vlib.CliInbandReply{Reply: text}} }

func TestLookupsLack(t *testing.T) {
	hash := func(n string) string {
		return "Hash table 'ed-flow-hash'\n    " + n + " active elements " + n + " active buckets\n    0 free lists\n-------- thread 0 vpp_main --------\n" +
			"Hash table 'ed-flow-hash'\n    0 active elements 0 active buckets\n" // as VPP 25.10 writes it
	}
	summary := "max translations per thread: 10000 fib 0\ntotal sessions: 2 (timed out: 0)\n"
	for _, tc := range []struct {
		what, hash, summary string
		want                bool
	}{
		{"all there", hash("7"), summary, false},
		{"sessions with one entry each", hash("5"), summary, false},
		{"wiped, and sessions since", hash("4"), summary, true},
		{"wiped", hash("0"), "total sessions: 0 (timed out: 0)\n", true},
		{"another text", "no such thing", summary, false},
		{"another summary", hash("0"), "", false},
	} {
		if got := LookupsLack(3, []vpp.Reply{said(tc.hash), said(tc.summary)}); got != tc.want {
			t.Errorf("%s: %t", tc.what, got)
		}
	}
	if LookupsLack(3, []vpp.Reply{{Err: errors.New("no")}, {Err: errors.New("no")}}) {
		t.Error("no answer")
	}
}

func TestMissingNodes(t *testing.T) {
	text := said("Feature paths configured on tap1...\n\nip4-unicast:\n  acl-plugin-in-ip4-fa\n  nat44-ed-classify\n\nip4-output:\n  none configured\n")
	want := []Node{
		{Arc: "ip4-unicast", Name: "acl-plugin-in-ip4-fa"},
		{Arc: "ip4-unicast", Name: "nat-pre-in2out", Like: "nat"},
		{Arc: "ip4-output", Name: "acl-plugin-out-ip4-fa"},
		{Arc: "ip6-unicast", Name: "acl-plugin-in-ip6-fa"},
	}
	missing, err := MissingNodes(text, want)
	if err != nil || len(missing) != 1 || missing[0] != want[2] { // of ip6-unicast nothing is said
		t.Errorf("%v, %v", missing, err)
	}
	if _, err := MissingNodes(vpp.Reply{Err: errors.New("no such interface")}, want); err == nil {
		t.Error("no error")
	}
}
