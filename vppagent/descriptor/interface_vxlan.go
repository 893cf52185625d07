package descriptor

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
)

const (
	idVxlans = "vxlan_tunnel_v2_dump"
	maxVNI   = 1<<24 - 1
)

func vxlanRequests() []Request {
	return []Request{dump(idVxlans, &vxlan.VxlanTunnelV2Dump{SwIfIndex: interface_types.InterfaceIndex(none)})}
}

// vxlanLink is a VXLAN tunnel of Ethernet frames. Its VRF is that of its interface: the packets of the tunnel are sent by it.
type vxlanLink struct {
	src, dst  netip.Addr
	vni, vrf  uint32
	multicast string // name of the interface; "" unless dst is a group
}

func compileVxlan(m *ligato.Interface) (link, error) {
	x := m.GetVxlan()
	l := vxlanLink{vni: x.GetVni(), vrf: m.GetVrf(), multicast: x.GetMulticast()}
	var err error
	if l.src, err = parseAddr("vxlan.src_address", x.GetSrcAddress()); err != nil {
		return nil, err
	}
	if l.dst, err = parseAddr("vxlan.dst_address", x.GetDstAddress()); err != nil {
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

func (l vxlanLink) needs() (deps []Dependency) {
	if l.vrf != 0 {
		deps = append(deps, Dependency{Key: vrfKey(l.vrf, l.src.Is6())})
	}
	if l.multicast != "" {
		deps = append(deps, Dependency{Key: kv.InterfaceKey(l.multicast)})
	}
	return deps
}

func (l vxlanLink) fill(m *ligato.Interface) {
	m.Type = ligato.Interface_VXLAN_TUNNEL
	m.Link = &ligato.Interface_Vxlan{Vxlan: &ligato.VxlanLink{
		SrcAddress: l.src.String(), DstAddress: l.dst.String(), Vni: l.vni, Multicast: l.multicast,
	}}
}

func (l vxlanLink) message(add bool) *vxlan.VxlanAddDelTunnelV3 {
	return &vxlan.VxlanAddDelTunnelV3{
		IsAdd: add, Instance: none, SrcAddress: toAddress(l.src), DstAddress: toAddress(l.dst), Vni: l.vni, EncapVrfID: l.vrf,
		DecapNextIndex: none, McastSwIfIndex: interface_types.InterfaceIndex(none),
	}
}

// delete names the tunnel itself as the interface of a group: VPP wants any that exists (vxlan_add_del_tunnel_v3, VPP 24.06).
func (l vxlanLink) delete(idx interface_types.InterfaceIndex) api.Message {
	m := l.message(false)
	m.McastSwIfIndex = idx
	return m
}

func (l vxlanLink) create(w *World, i *iface) (Op, error) {
	m := l.message(true)
	if l.multicast != "" {
		var err error
		if m.McastSwIfIndex, err = w.index(l.multicast); err != nil {
			return Op{}, err
		}
	}
	return Op{Call: write(m), Then: func(r vpp.Reply) []Op {
		return i.created(w, r.Msg.(*vxlan.VxlanAddDelTunnelV3Reply).SwIfIndex, false)
	}}, nil
}

func dumpedVxlans(w *World, d *Dump, out map[uint32]link) error {
	all, err := details[*vxlan.VxlanTunnelV2Details](d, idVxlans)
	if optional(err) != nil {
		return err
	}
	for _, m := range all {
		l := vxlanLink{src: fromAddress(m.SrcAddress), dst: fromAddress(m.DstAddress), vni: m.Vni, vrf: m.EncapVrfID}
		if l.dst.IsMulticast() {
			l.multicast = w.Name(uint32(m.McastSwIfIndex))
		}
		out[uint32(m.SwIfIndex)] = l
	}
	return nil
}

// spelledAs is the link with the names of other interfaces as wanted has them: one may be called by more than one name.
func (w *World) spelledAs(got, wanted link) link {
	same := func(name, want string) bool { return name != "" && w.canonical(want) == name }
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
