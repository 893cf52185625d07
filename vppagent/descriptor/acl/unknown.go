package acl

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// closedPart denies everything on an interface, unless another part or a value states its access lists.
type closedPart string

// Closed is the part that an unknown interface gets: an InterfaceACLs that denies everything until a value for the interface is wanted.
func Closed(iface string) descriptor.Derived {
	return descriptor.Derived{Key: kv.InterfaceACLsKey(iface), State: closedPart(iface)}
}

// ClosePods returns the descriptors so that each interface that a value makes for a pod (kv.PodInterface) gets the part of Closed with that
// value: there is no moment at which it has neither this part nor its own lists.
func ClosePods(all []*descriptor.Descriptor) []*descriptor.Descriptor {
	out := slices.Clone(all)
	for i, d := range out {
		if !d.Has(kv.InterfaceKey("x")) || d.Derived == nil {
			continue
		}
		closing := *d
		closing.Derived = func(state any) []descriptor.Derived {
			follow := d.Derived(state)
			if name, is := kv.PodInterfaceOf(kv.Key(d.Message(state))); is {
				follow = append(follow, Closed(name))
			}
			return follow
		}
		out[i] = &closing
	}
	return out
}

// closedLists is the state of an interface that nothing may pass.
func closedLists(iface string) *accessLists {
	return &accessLists{key: kv.InterfaceACLsKey(iface), iface: iface, in: []string{denyKey}, out: []string{denyKey}}
}

// shut reports that the lists deny everything in both directions.
func (l *accessLists) shut() bool {
	return slices.Equal(l.in, []string{denyKey}) && slices.Equal(l.out, []string{denyKey})
}

// Unknown returns the interfaces that a CNI may have made for a pod, sorted by name: those whose tag names a pod and, if kinds is set, those of a
// kind that CNIs give to pods and without an address. Without kinds, interfaces of such a kind remain that are already closed. Our interfaces and
// sub-interfaces do not count.
func Unknown(w *descriptor.World, kinds bool) []*descriptor.Iface {
	var out []*descriptor.Iface
	for _, i := range w.Interfaces() {
		if i.NamesPod() || i.Index != 0 && !i.Ours && !i.Sub && ofPod(i) && !i.Own && (kinds || deniesAll(w, i.Index)) {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *descriptor.Iface) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// LearnAddressed asks VPP which interfaces have an address, unless their tags name pods, and records it in Iface.Own. A CNI gives VPP's
// end of a pod's interface no address: the interface is unnumbered, or routes lead to it. The error says that VPP did not answer.
func LearnAddressed(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, all []*descriptor.Iface) error {
	all = slices.DeleteFunc(slices.Clone(all), (*descriptor.Iface).NamesPod)
	var calls []vpp.Call
	for _, i := range all {
		for _, v6 := range []bool{false, true} {
			calls = append(calls, vpp.Call{Dump: true, Msg: &ip.IPAddressDump{SwIfIndex: interface_types.InterfaceIndex(i.Index), IsIPv6: v6}})
		}
	}
	if len(calls) == 0 {
		return nil
	}
	for n, r := range do(ctx, calls...) {
		if errors.Is(r.Err, vpp.ErrDisconnected) || ctx.Err() != nil {
			return r.Err
		}
		for _, m := range r.Details {
			if d, ok := m.(*ip.IPAddressDetails); ok && !descriptor.FromPrefix(ip_types.Prefix(d.Prefix)).Addr().IsLinkLocalUnicast() {
				all[n/2].Own = true
			}
		}
	}
	return nil
}

// deniesAll reports that our ACLs deny everything on an interface.
func deniesAll(w *descriptor.World, index uint32) bool {
	deny, ok := factsOf(w).acls.index[denyKey]
	a := factsOf(w).lists[index]
	return ok && slices.Equal(a.in, []uint32{deny}) && slices.Equal(a.out, []uint32{deny})
}

// ofPod reports that CNIs give interfaces of this kind to pods: tap, af_packet and memif. VPP distinguishes a tap from a NIC of a
// virtual machine by name only (interface_dev_type is "virtio" for both).
func ofPod(i *descriptor.Iface) bool {
	switch i.DevType {
	case "virtio", "tap":
		return strings.HasPrefix(i.VPPName, "tap")
	case "af-packet", "memif":
		return true
	}
	return false
}
