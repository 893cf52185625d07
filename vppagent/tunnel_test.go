package vppagent_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func vxlan(name string, link *interfaces.VxlanLink) *interfaces.Interface {
	return &interfaces.Interface{Name: name, Type: interfaces.Interface_VXLAN_TUNNEL, Enabled: true, Link: &interfaces.Interface_Vxlan{Vxlan: link}}
}

func vlan(name, parent string, id uint32) *interfaces.Interface {
	return &interfaces.Interface{
		Name: name, Type: interfaces.Interface_SUB_INTERFACE, Enabled: true,
		Link: &interfaces.Interface_Sub{Sub: &interfaces.SubInterface{ParentName: parent, SubId: id}},
	}
}

func TestOverlayComesAndGoes(t *testing.T) { overlayComesAndGoes(t, newLab(t, vppagent.Config{}).conn) }

func TestVPPOverlayComesAndGoes(t *testing.T) { overlayComesAndGoes(t, realVPP(t, 0, "")) }

// An overlay of a bridge domain with a BVI, tunnels and VLANs is made, moved and removed in whole transactions, and a fresh agent
// finds it.
func overlayComesAndGoes(t *testing.T, caller vppagent.Caller) {
	t.Helper()
	bvi := &interfaces.Interface{
		Name: "vxlanBVI", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, PhysAddress: "12:2b:c0:a8:10:01", IpAddresses: []string{"192.168.30.1/24"},
	}
	to := func(last string) *interfaces.VxlanLink {
		return &interfaces.VxlanLink{SrcAddress: "192.168.16.1", DstAddress: "192.168.16." + last, Vni: 10}
	}
	group := &interfaces.VxlanLink{SrcAddress: "fd00::1", DstAddress: "ff02::5", Vni: 10, Multicast: "uplink"}
	down := loopback("uplink")
	down.Enabled = false
	reachesEach(t, caller, [][]proto.Message{
		{bvi, loopback("uplink"), vxlan("vxlan2", to("2")), vxlan("vxlan3", to("3")), bridge("vxlanBD", "vxlanBVI*", "vxlan2", "vxlan3")},
		{bvi, loopback("uplink"), vxlan("vxlan2", to("4")), vxlan("vxlan3", to("3")), bridge("vxlanBD", "vxlanBVI*", "vxlan2", "vxlan3")},
		{bvi, loopback("uplink"), vxlan("vxlan2", to("3")), vxlan("vxlan3", to("2")), bridge("vxlanBD", "vxlanBVI*", "vxlan2", "vxlan3")},
		{bvi, loopback("uplink"), vxlan("vxlan2", group), vlan("vlan5", "uplink", 5), bridge("vxlanBD", "vxlanBVI*", "vxlan2", "vlan5")},
		{bvi, loopback("uplink"), vlan("vlan5", "uplink", 6), bridge("vxlanBD", "vxlanBVI*", "vlan5")},
		{down},
		{loopback("uplink"), vlan("vlan5", "uplink", 5), vlan("vlan6", "uplink", 6)},
		{},
	})
}

// VPP refuses to set a sub-interface up while its parent is down; after the parent is up, VPP accepts it.
func TestSubInterfaceFollowsItsParent(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	down := loopback("uplink")
	down.Enabled = false
	c := l.put(down, vlan("vlan5", "uplink", 5))
	if s := status(c, kv.InterfaceKey("vlan5")); s.State != event.Retrying || s.Err == "" {
		t.Errorf("parent down: %+v", s)
	}
	l.put(loopback("uplink"))
	l.allConfigured(l.resync())
	if dump := l.sim.Dump(); !strings.Contains(dump, "interface loop0.5 up") {
		t.Errorf("parent up:\n%s", dump)
	}
}

func TestTunnelRefuses(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	tunnel := func(src, dst string, vni uint32, multicast string) *interfaces.Interface {
		return vxlan("x", &interfaces.VxlanLink{SrcAddress: src, DstAddress: dst, Vni: vni, Multicast: multicast})
	}
	rewrite := vlan("x", "a", 5)
	rewrite.GetSub().TagRwOption = interfaces.SubInterface_POP1
	mac := vlan("x", "a", 5)
	mac.PhysAddress = "02:00:00:00:00:01"
	gpe := tunnel("10.0.0.1", "10.0.0.2", 1, "")
	gpe.GetVxlan().Gpe = &interfaces.VxlanLink_Gpe{}
	for want, m := range map[string]proto.Message{
		"vxlan.vni: 16777216 is above 16777215":                                 tunnel("10.0.0.1", "10.0.0.2", 1<<24, ""),
		"vxlan.dst_address: 10.0.0.1 is the source":                             tunnel("10.0.0.1", "10.0.0.1", 1, ""),
		"vxlan.dst_address: fd00::1 is of another family than 10.0.0.1":         tunnel("10.0.0.1", "fd00::1", 1, ""),
		"vxlan.multicast: empty, and 239.1.1.1 is a group":                      tunnel("10.0.0.1", "239.1.1.1", 1, ""),
		"vxlan.multicast: 10.0.0.2 is not a group":                              tunnel("10.0.0.1", "10.0.0.2", 1, "a"),
		"vxlan.src_address: 239.1.1.1 is a group":                               tunnel("239.1.1.1", "10.0.0.2", 1, ""),
		`vxlan.src_address: "" is not an IP address`:                            tunnel("", "10.0.0.2", 1, ""),
		"vxlan.gpe: not supported":                                              gpe,
		"sub.sub_id: 4096 is no VLAN":                                           vlan("x", "a", 4096),
		"sub.parent_name: its own":                                              vlan("x", "x", 5),
		"sub.parent_name: empty":                                                vlan("x", "", 5),
		"sub.tag_rw_option: not supported":                                      rewrite,
		"phys_address: a sub-interface has its parent's":                        mac,
		"type: GRE_TUNNEL: not supported (interfaces that exist need no value)": &interfaces.Interface{Name: "x", Type: interfaces.Interface_GRE_TUNNEL},
	} {
		if s := status(l.put(m), kv.Key(m)); s.State != event.Invalid || s.Err != want {
			t.Errorf("%s: %+v", want, s)
		}
	}
}
