package linux_test

import (
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/tapv2"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/netns"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	vppinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// makeTap makes the link that a VPP would make, and returns its index.
func (l *lab) makeTap(name string) int {
	l.t.Helper()
	file, err := os.Open(l.own.path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer file.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netns.Do(int(file.Fd()), func() error { return netlink.LinkAdd(tap) }); err != nil {
		l.t.Skipf("cannot make a tap: %v: needs /dev/net/tun", err)
	}
	return l.own.index(name)
}

// index is that of a link; 0: it does not exist.
func (n *netNS) index(name string) int {
	link, err := n.nl.LinkByName(name)
	if err != nil {
		return 0
	}
	return link.Attrs().Index
}

func (l *lab) tapValues() (tap, m, route proto.Message) {
	tap = &vppinterfaces.Interface{Name: "tap", Type: vppinterfaces.Interface_TAP, Link: &vppinterfaces.Interface_Tap{Tap: &vppinterfaces.TapLink{Version: 2, HostIfName: "vpptap"}}}
	m = &interfaces.Interface{
		Name: "pod", Type: interfaces.Interface_TAP_TO_VPP, HostIfName: "eth0", Enabled: true, Namespace: l.pod.ref(), IpAddresses: []string{"10.2.0.2/24"},
		Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{VppTapIfName: "tap"}},
	}
	return tap, m, &l3.Route{OutgoingInterface: "pod", DstNetwork: "0.0.0.0/0", GwAddr: "10.2.0.1"}
}

// A tap of VPP's moves into its namespace after VPP has made it, and back before VPP deletes it.
func TestTap(t *testing.T) {
	l := newLab(t)
	tap, m, route := l.tapValues()
	c := l.put(m, route)
	if s := state(c, m); s.State != event.Pending || s.Details[0] != kv.InterfaceKey("tap") {
		t.Errorf("without VPP's side: %+v", s)
	}
	if s := state(c, route); s.State != event.Pending {
		t.Errorf("without the interface: %+v", s)
	}
	l.makeTap("vpptap")
	l.checkApplied("tap", l.put(tap))
	if text := l.pod.text(t); !strings.Contains(text, "eth0") || !strings.Contains(text, "via 10.2.0.1") {
		t.Errorf("pod has\n%s", text)
	}
	l.checkQuiet("tap")
	c = l.del(tap)
	if s := state(c, m); s.State != event.Pending {
		t.Errorf("VPP's side is gone: %+v", s)
	}
	if text := l.own.text(t); !strings.Contains(text, "vpptap") || strings.Contains(l.pod.text(t), "eth0") {
		t.Errorf("the agent's namespace has\n%s", text)
	}
}

// TestTapOfFormerVPP: the next VPP has made its tap while the former one's is still in the pod. The new one takes its place, with addresses and routes.
func TestTapOfFormerVPP(t *testing.T) {
	for name, restarted := range map[string]bool{"the agent saw it": false, "the agent was restarted": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			tap, m, route := l.tapValues()
			l.makeTap("vpptap")
			l.checkApplied("first", l.put(tap, m, route))
			const index = interface_types.InterfaceIndex(1) // local0 is 0
			if r := l.caller.Do(t.Context(), vpp.Call{Msg: &tapv2.TapDeleteV2{SwIfIndex: index}})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			next := l.makeTap("vpptap")
			if restarted {
				l.restart()
			}
			l.checkApplied("next", l.resync())
			if is := l.pod.index("eth0"); is != next {
				t.Errorf("eth0 has index %d, the tap of the next VPP has %d", is, next)
			}
			if text := l.pod.text(t); !strings.Contains(text, "10.2.0.2/24") || !strings.Contains(text, "via 10.2.0.1") {
				t.Errorf("pod has\n%s", text)
			}
			l.checkQuiet("next")
		})
	}
}

// TestTapMadeAnew: VPP has the tap, and the agent ended before it moved the link, while the former one was still in the pod.
func TestTapMadeAnew(t *testing.T) {
	l := newLab(t)
	tap, m, route := l.tapValues()
	l.makeTap("vpptap")
	l.checkApplied("first", l.put(tap, m, route))
	next := l.makeTap("vpptap")
	l.restart()
	l.checkApplied("next", l.resync())
	if is := l.pod.index("eth0"); is != next || l.own.index("vpptap") != 0 {
		t.Errorf("eth0 has index %d, the next tap has %d", is, next)
	}
	l.checkApplied("removed", l.del(tap, m, route))
	if l.pod.index("eth0") != 0 {
		t.Error("eth0 is left in the pod")
	}
}

// TestTapForeign: a link of another kind at the tap's place stays, and the reason is given.
func TestTapForeign(t *testing.T) {
	l := newLab(t)
	tap, m, _ := l.tapValues()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	if err := l.pod.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far"}); err != nil {
		t.Fatal(err)
	}
	l.makeTap("vpptap")
	c := l.put(tap, m)
	if s := state(c, m); !strings.Contains(s.Err, "link eth0 is no tap of VPP's") {
		t.Errorf("%+v", s)
	}
	before := l.pod.index("eth0")
	l.del(tap, m)
	if before == 0 || l.pod.index("eth0") != before {
		t.Error("the foreign link is gone")
	}
}
