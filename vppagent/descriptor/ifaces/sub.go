package ifaces

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// subLink is a sub-interface with one VLAN tag. It is up only if its parent is up, and has the parent's MAC.
type subLink struct {
	parent string
	id     uint32 // of the sub-interface, and the VLAN
}

func compileSub(m *ligato.Interface) (link, error) {
	s := m.GetSub()
	switch {
	case s.GetParentName() == "":
		return nil, errors.New("sub.parent_name: empty")
	case s.GetParentName() == m.GetName():
		return nil, errors.New("sub.parent_name: its own")
	case s.GetSubId() == 0 || s.GetSubId() > 4095:
		return nil, fmt.Errorf("sub.sub_id: %d is no VLAN", s.GetSubId())
	case s.GetTagRwOption() != ligato.SubInterface_DISABLED || s.GetPushDot1Q() || s.GetTag1() != 0 || s.GetTag2() != 0:
		return nil, errors.New("sub.tag_rw_option: not supported")
	case m.GetPhysAddress() != "":
		return nil, errors.New("phys_address: a sub-interface has its parent's")
	}
	return subLink{parent: s.GetParentName(), id: s.GetSubId()}, nil
}

func (s subLink) claim() string { return fmt.Sprintf("sub %d of %s", s.id, s.parent) }

func (s subLink) needs() []descriptor.Dependency {
	return []descriptor.Dependency{{Key: kv.InterfaceKey(s.parent)}}
}

func (s subLink) fill(m *ligato.Interface) {
	m.Type = ligato.Interface_SUB_INTERFACE
	m.Link = &ligato.Interface_Sub{Sub: &ligato.SubInterface{ParentName: s.parent, SubId: s.id}}
}

func (subLink) delete(idx interface_types.InterfaceIndex) api.Message {
	return &interfaces.DeleteSubif{SwIfIndex: idx}
}

func (s subLink) create(w *descriptor.World, i *iface) (descriptor.Op, error) {
	parent, err := w.Index(s.parent)
	if err != nil {
		return descriptor.Op{}, err
	}
	return descriptor.Op{Call: descriptor.Write(&interfaces.CreateVlanSubif{SwIfIndex: parent, VlanID: s.id}), Then: func(r vpp.Reply) []descriptor.Op {
		return i.created(w, r.Msg.(*interfaces.CreateVlanSubifReply).SwIfIndex, false)
	}}, nil
}

// dumpedSubs corrects the kind of sub-interfaces, for which VPP shows the kind of their parent's device.
func dumpedSubs(w *descriptor.World, out map[uint32]link) {
	for _, i := range w.Interfaces() {
		if i.Sub {
			delete(out, i.Index)
		}
		if i.Vlan != 0 {
			out[i.Index] = subLink{parent: w.Name(i.Parent), id: i.Vlan}
		}
	}
}
