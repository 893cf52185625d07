package ifaces

import (
	"errors"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	idVxlans = "vxlan_tunnel_v2_dump"
	maxVNI   = 1<<24 - 1
)

func vxlanRequests() []descriptor.Request {
	return []descriptor.Request{descriptor.DumpRequest(idVxlans, &vxlan.VxlanTunnelV2Dump{SwIfIndex: interface_types.InterfaceIndex(descriptor.None)})}
}

// vxlanLink is a VXLAN tunnel of Ethernet frames. The VRF of the interface is also that of the tunnel's outer packets.
type vxlanLink struct {
	src, dst  netip.Addr
	vni, vrf  uint32
	multicast string // name of the interface; "" unless dst is a group
}

func compileVxlan(m *ligato.Interface) (link, error) {
	x := m.GetVxlan()
	l := vxlanLink{vni: x.GetVni(), vrf: m.GetVrf(), multicast: x.GetMulticast()}
	var err error
	if l.src, err = descriptor.ParseAddr("vxlan.src_address", x.GetSrcAddress()); err != nil {
		return nil, err
	}
	if l.dst, err = descriptor.ParseAddr("vxlan.dst_address", x.GetDstAddress()); err != nil {
		return nil, err
	}
	switch {
	case x.GetGpe() != nil:
		return nil, errors.New("vxlan.gpe: not supported")
	case l.vni > maxVNI:
		return nil, fmt.Errorf("vxlan.vni: %d is above %d", l.vni, maxVNI)
	case l.src.Is4() != l.dst.Is4():
		return nil, fmt.Errorf("vxlan.dst_address: %s is of another family than %s", l.dst, l.src)
	case l.src == l.dst:
		return nil, fmt.Errorf("vxlan.dst_address: %s is the source", l.dst)
	case l.src.IsMulticast():
		return nil, fmt.Errorf("vxlan.src_address: %s is a group", l.src)
	case l.dst.IsMulticast() && l.multicast == "":
		return nil, fmt.Errorf("vxlan.multicast: empty, and %s is a group", l.dst)
	case !l.dst.IsMulticast() && l.multicast != "":
		return nil, fmt.Errorf("vxlan.multicast: %s is not a group", l.dst)
	}
	return l, nil
}

func (l vxlanLink) claim() string {
	return fmt.Sprintf("vxlan %s %s vrf %d vni %d", l.src, l.dst, l.vrf, l.vni)
}

func (l vxlanLink) needs() (deps []descriptor.Dependency) {
	if l.vrf != 0 {
		deps = append(deps, descriptor.Dependency{Key: descriptor.VRFKey(l.vrf, l.src.Is6())})
	}
	if l.multicast != "" {
		deps = append(deps, descriptor.Dependency{Key: kv.InterfaceKey(l.multicast)})
	}
	return deps
}

func (l vxlanLink) fill(m *ligato.Interface) {
	m.Type = ligato.Interface_VXLAN_TUNNEL
	m.Link = &ligato.Interface_Vxlan{Vxlan: &ligato.VxlanLink{
		SrcAddress: l.src.String(), DstAddress: l.dst.String(), Vni: l.vni, Multicast: l.multicast,
	}}
}

func (l vxlanLink) tunnelRequest(add bool) *vxlan.VxlanAddDelTunnelV3 {
	return &vxlan.VxlanAddDelTunnelV3{
		IsAdd: add, Instance: descriptor.None, SrcAddress: descriptor.ToAddress(l.src), DstAddress: descriptor.ToAddress(l.dst), Vni: l.vni, EncapVrfID: l.vrf,
		DecapNextIndex: descriptor.None, McastSwIfIndex: interface_types.InterfaceIndex(descriptor.None),
	}
}

// delete names the tunnel itself as the interface of a group: VPP wants any existing interface (vxlan_add_del_tunnel_v3, VPP 24.06).
func (l vxlanLink) delete(idx interface_types.InterfaceIndex) api.Message {
	m := l.tunnelRequest(false)
	m.McastSwIfIndex = idx
	return m
}

func (l vxlanLink) create(w *descriptor.World, i *iface) (descriptor.Op, error) {
	m := l.tunnelRequest(true)
	if l.multicast != "" {
		var err error
		if m.McastSwIfIndex, err = w.Index(l.multicast); err != nil {
			return descriptor.Op{}, err
		}
	}
	return descriptor.Op{Call: descriptor.Write(m), Then: func(r vpp.Reply) []descriptor.Op {
		return i.created(w, r.Msg.(*vxlan.VxlanAddDelTunnelV3Reply).SwIfIndex, false)
	}}, nil
}

func dumpedVxlans(w *descriptor.World, d *descriptor.Dump, out map[uint32]link) error {
	all, err := descriptor.Details[*vxlan.VxlanTunnelV2Details](d, idVxlans)
	if descriptor.Optional(err) != nil {
		return err
	}
	for _, m := range all {
		l := vxlanLink{src: descriptor.FromAddress(m.SrcAddress), dst: descriptor.FromAddress(m.DstAddress), vni: m.Vni, vrf: m.EncapVrfID}
		if l.dst.IsMulticast() {
			l.multicast = w.Name(uint32(m.McastSwIfIndex))
		}
		out[uint32(m.SwIfIndex)] = l
	}
	return nil
}

// spelledAs returns the link with the names of other interfaces as in wanted: an interface may have several names.
func spelledAs(w *descriptor.World, got, wanted link) link {
	same := func(name, want string) bool { return name != "" && w.Canonical(want) == name }
	switch want := wanted.(type) {
	case vxlanLink:
		if g, ok := got.(vxlanLink); ok && same(g.multicast, want.multicast) {
			g.multicast = want.multicast
			return g
		}
	case subLink:
		if g, ok := got.(subLink); ok && same(g.parent, want.parent) {
			g.parent = want.parent
			return g
		}
	}
	return got
}
