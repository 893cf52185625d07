package ifaces

import (
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const idUnnumbered = "ip_unnumbered_dump"

// unnumbered says that an interface of ours uses the addresses of another: derived, with the interface as its base.
type unnumbered struct{ iface, lender string }

// Unnumbered describes the value that an Interface derives if it uses the addresses of another.
//
// VPP drops all packets that enter by an interface without an address. So this value opens the interface, and a plan puts it after everything
// that decides about packets. It also follows the addresses: VPP copies where the lender's are (vnet_sw_interface_update_unnumbered, VPP 25.10).
func Unnumbered() *descriptor.Descriptor {
	d := descriptor.Spec[*ligato.Interface, *unnumbered]{
		Name: "unnumbered", Prefix: "vpp/interface/*/unnumbered/", Tagged: true,
		Compile: descriptor.NoMessage[*ligato.Interface, *unnumbered], Message: func(*unnumbered) *ligato.Interface { return nil },
		Equal: func(have, want *unnumbered) bool { return *have == *want },
		Dependencies: func(u *unnumbered) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(u.lender)}}
		},
		Claims: func(u *unnumbered) []string { return []string{"unnumbered " + u.iface} },
		Create: func(w *descriptor.World, u *unnumbered) ([]descriptor.Op, error) {
			idx, err := w.Index(u.iface)
			if err != nil {
				return nil, err
			}
			lender, err := w.Index(u.lender)
			return []descriptor.Op{
				{Call: descriptor.Write(&ip.SwInterfaceIP6EnableDisable{SwIfIndex: idx, Enable: true})},
				{Call: descriptor.Write(&interfaces.SwInterfaceSetUnnumbered{SwIfIndex: lender, UnnumberedSwIfIndex: idx, IsAdd: true})},
			}, err
		},
		Delete: func(w *descriptor.World, u *unnumbered) ([]descriptor.Op, error) {
			idx, err := w.Index(u.iface)
			if err != nil {
				return nil, err
			}
			return []descriptor.Op{
				{Gone: true, Call: descriptor.Write(&interfaces.SwInterfaceSetUnnumbered{UnnumberedSwIfIndex: idx})},
				{Gone: true, Call: descriptor.Write(&ip.SwInterfaceIP6EnableDisable{SwIfIndex: idx})},
			}, nil
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idUnnumbered, &ip.IPUnnumberedDump{SwIfIndex: interface_types.InterfaceIndex(descriptor.None)})}
		},
		Retrieve: retrieveUnnumbered,
	}.Descriptor()
	d.After = []string{"address", "interface-acls", "nat44-interface", "dnat44", "cnat-interface", "reject-route"}
	return d
}

func retrieveUnnumbered(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*ip.IPUnnumberedDetails](d, idUnnumbered)
	if err != nil {
		return nil, err
	}
	named := map[string]string{} // the lender's name as the value has it, by the interface's
	c.Each(func(_ string, state any, _ bool) {
		u := state.(*unnumbered)
		named[u.iface] = u.lender
	})
	var out []descriptor.Found
	for _, m := range all {
		i, lender := w.At(uint32(m.SwIfIndex)), w.Name(uint32(m.IPSwIfIndex))
		if i == nil || !i.Ours && named[i.Name] == "" {
			continue
		}
		if name := named[i.Name]; name != "" && w.Canonical(name) == lender {
			lender = name
		}
		u := &unnumbered{iface: i.Name, lender: lender}
		out = append(out, descriptor.Found{Key: kv.InterfaceUnnumberedKey(u.iface, u.lender), Base: kv.InterfaceKey(i.Name), State: u, Ours: i.Ours})
	}
	return out, nil
}
