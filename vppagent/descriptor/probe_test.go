package descriptor

import (
	"errors"
	"testing"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

func said(text string) vpp.Reply { return vpp.Reply{Msg: &vlib.CliInbandReply{Reply: text}} }

func TestMissingNodes(t *testing.T) {
	text := said("Feature paths configured on tap1...\n\nip4-unicast:\n  acl-plugin-in-ip4-fa\n  nat44-ed-classify\n\nip4-output:\n  none configured\n")
	want := []Node{
		{Arc: "ip4-unicast", Name: "acl-plugin-in-ip4-fa"},
		{Arc: "ip4-unicast", Name: "nat-pre-in2out", Like: "nat"},
		{Arc: "ip4-output", Name: "acl-plugin-out-ip4-fa"},
		{Arc: "ip6-unicast", Name: "acl-plugin-in-ip6-fa"},
	}
	missing, err := MissingNodes(text, want)
	if err != nil || len(missing) != 1 || missing[0] != want[2] { // the answer says nothing of ip6-unicast
		t.Errorf("%v, %v", missing, err)
	}
	if _, err := MissingNodes(vpp.Reply{Err: errors.New("no such interface")}, want); err == nil {
		t.Error("no error")
	}
}
