package nat

import (
	"testing"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// TestLostTranslationsAreReported: when NAT44 is enabled, its former connections are dead if VPP had neither NAT44 nor an interface of a pod.
func TestLostTranslationsAreReported(t *testing.T) {
	pod := &descriptor.Iface{Index: 1, Name: "host-a", VPPName: "host-a", Tag: "shop/web"}
	for _, tc := range []struct {
		name     string
		sessions uint32 // 0: NAT44 is disabled
		has      []*descriptor.Iface
		want     int
	}{{"a new VPP", 0, nil, 1}, {"another renderer served pods", 0, []*descriptor.Iface{pod}, 0}, {"NAT44 is on", 64512, nil, 0}} {
		began := 0
		w := descriptor.NewWorld(descriptor.Options{NATBegan: func() { began++ }}, func(string) any { return nil })
		w.SetInterfaces(tc.has)
		dump := descriptor.NewDump(runningConfigRequests(w, nil), []vpp.Reply{{Msg: &nat44_ed.Nat44ShowRunningConfigReply{Sessions: tc.sessions}}})
		if _, err := retrieveNat44Global(w, dump, nil); err != nil {
			t.Fatal(err)
		}
		ops, err := Nat44Global().Create(w, &nat44Global{forwarding: true})
		if err != nil {
			t.Fatal(err)
		}
		ops[0].Then(vpp.Reply{})
		if began != tc.want {
			t.Errorf("%s: reported %d times, want %d", tc.name, began, tc.want)
		}
	}
}
