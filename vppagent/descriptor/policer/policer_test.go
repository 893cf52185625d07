package policer

import (
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// TestWhereALimitIs: VPP up to 25.10 shows the policer of an interface's input on another arc than VPP 26.06.
func TestWhereALimitIs(t *testing.T) {
	const head = "Feature paths configured on tap0...\r\n\r\n"
	in, out := &limit{iface: "tap0"}, &limit{iface: "tap0", output: true}
	for _, tc := range []struct {
		name, text string
		limit      *limit
		off        bool
	}{
		{"25.10", head + "ip4-unicast:\r\n  none configured\r\n\r\ndevice-input:\r\n  policer-input\r\n", in, false},
		{"26.06", head + "ip4-unicast:\r\n  acl-plugin-in-ip4-fa\r\n  policer-input\r\n\r\nip6-unicast:\r\n  policer-input\r\n", in, false},
		{"nowhere", head + "ip4-unicast:\r\n  none configured\r\n\r\nip4-output:\r\n  policer-output\r\n", in, true},
		{"output", head + "ip4-output:\r\n  policer-output\r\n", out, false},
		{"output, nowhere", head + "ip4-unicast:\r\n  policer-input\r\n\r\nip4-output:\r\n  none configured\r\n", out, true},
	} {
		w := descriptor.NewWorld(descriptor.Options{}, nil)
		w.SetInterfaces([]*descriptor.Iface{{Index: 3, VPPName: "tap0", Name: "tap0"}})
		ask := descriptor.ShowFeatures("tap0")
		d := descriptor.NewDump([]descriptor.Request{descriptor.AskRequest(ask.Cmd, api.Message(ask))}, []vpp.Reply{{Msg: &vlib.CliInbandReply{Reply: tc.text}}})
		if off, err := tc.limit.isOff(w, d); err != nil || off != tc.off {
			t.Errorf("%s: off %t, want %t: %v", tc.name, off, tc.off, err)
		}
	}
}
