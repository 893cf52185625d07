package nat

import (
	"errors"
	"testing"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

func cliReply(text string) vpp.Reply { return vpp.Reply{Msg: &vlib.CliInbandReply{Reply: text}} }

func TestLookupsLack(t *testing.T) {
	hash := func(n string) string {
		return "Hash table 'ed-flow-hash'\n    " + n + " active elements " + n + " active buckets\n    0 free lists\n-------- thread 0 vpp_main --------\n" +
			"Hash table 'ed-flow-hash'\n    0 active elements 0 active buckets\n" // as VPP 25.10 prints it
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
		if got := LookupsLack(3, []vpp.Reply{cliReply(tc.hash), cliReply(tc.summary)}); got != tc.want {
			t.Errorf("%s: %t", tc.what, got)
		}
	}
	if LookupsLack(3, []vpp.Reply{{Err: errors.New("no")}, {Err: errors.New("no")}}) {
		t.Error("no answer")
	}
}
