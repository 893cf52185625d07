package ifaces

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// address is an address of an interface of ours: derived, with the interface as its base.
type address struct {
	iface  string
	prefix netip.Prefix
	vrf    uint32
}

func addressRequest(idx uint32, v6 bool) descriptor.Request {
	id := "ip_address_dump " + strconv.FormatUint(uint64(idx), 10) + " " + strconv.FormatBool(v6)
	return descriptor.DumpRequest(id, &ip.IPAddressDump{SwIfIndex: interface_types.InterfaceIndex(idx), IsIPv6: v6})
}

// Address describes the value that an Interface derives for each of its addresses.
func Address() *descriptor.Descriptor {
	return descriptor.Spec[*ligato.Interface, *address]{
		Name: "address", Prefix: "vpp/interface/*/address/static/", Tagged: true,
		Compile: descriptor.NoMessage[*ligato.Interface, *address], Message: func(*address) *ligato.Interface { return nil },
		Equal: func(have, want *address) bool { return *have == *want },
		Dependencies: func(a *address) []descriptor.Dependency {
			deps := []descriptor.Dependency{{Without: vrfClaim(a.iface, a.prefix.Addr().Is6())}}
			if a.vrf == 0 {
				return deps
			}
			// VPP does not move an interface that has addresses.
			return append(deps, descriptor.Dependency{Key: kv.InterfaceVrfKey(a.iface, a.vrf, a.prefix.Addr().Is6())})
		},
		Claims: func(a *address) []string { return []string{"address " + a.prefix.String()} },
		Create: func(w *descriptor.World, a *address) ([]descriptor.Op, error) { return a.addressOps(w, true) },
		Delete: func(w *descriptor.World, a *address) ([]descriptor.Op, error) { return a.addressOps(w, false) },
		Dumps: func(w *descriptor.World, c descriptor.Candidates) (out []descriptor.Request) {
			for _, i := range ownInterfaces(w, c) {
				out = append(out, addressRequest(i.Index, false), addressRequest(i.Index, true), getTable(i.Index, false), getTable(i.Index, true))
			}
			return out
		},
		Retrieve: retrieveAddresses,
	}.Descriptor()
}

func (a *address) addressOps(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	idx, err := w.Index(a.iface)
	if err != nil {
		return nil, err
	}
	return []descriptor.Op{{Gone: !add, Call: descriptor.Write(&interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: idx, IsAdd: add, Prefix: ip_types.AddressWithPrefix(descriptor.ToPrefix(a.prefix)),
	})}}, nil
}

// ownInterfaces returns the interfaces whose addresses and VRFs are ours: all of an interface of ours, and the wanted ones of an
// adopted interface. Sorted by index.
func ownInterfaces(w *descriptor.World, c descriptor.Candidates) []*descriptor.Iface {
	names := map[string]bool{}
	c.Each(func(_ string, state any, _ bool) {
		switch s := state.(type) {
		case *address:
			names[s.iface] = true
		case *ifaceVRF:
			names[s.iface] = true
		}
	})
	return slices.DeleteFunc(w.Interfaces(), func(i *descriptor.Iface) bool { return !i.Ours && !names[i.Name] })
}

func retrieveAddresses(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	var out []descriptor.Found
	for _, i := range ownInterfaces(w, c) {
		for _, v6 := range []bool{false, true} {
			all, err := descriptor.Details[*ip.IPAddressDetails](d, addressRequest(i.Index, v6).ID)
			if err != nil {
				return nil, err
			}
			vrf, err := tableOf(d, i.Index, v6)
			if err != nil {
				return nil, err
			}
			for _, m := range all {
				a := &address{iface: i.Name, prefix: descriptor.FromPrefix(ip_types.Prefix(m.Prefix)), vrf: vrf}
				if a.prefix.Addr().IsLinkLocalUnicast() && v6 {
					continue // VPP's own
				}
				key := kv.InterfaceAddressKey(i.Name, a.prefix.String())
				out = append(out, descriptor.Found{Key: key, Base: kv.InterfaceKey(i.Name), State: a, Ours: i.Ours})
			}
		}
	}
	return out, nil
}

// ifaceVRF is the VRF of an interface of ours for one address family: derived, with the interface as its base.
type ifaceVRF struct {
	iface string
	vrf   uint32
	v6    bool
}

func getTable(idx uint32, v6 bool) descriptor.Request {
	id := "sw_interface_get_table " + strconv.FormatUint(uint64(idx), 10) + " " + strconv.FormatBool(v6)
	return descriptor.AskRequest(id, &interfaces.SwInterfaceGetTable{SwIfIndex: interface_types.InterfaceIndex(idx), IsIPv6: v6})
}

// tableOf returns the table in the answer to getTable.
func tableOf(d *descriptor.Dump, idx uint32, v6 bool) (uint32, error) {
	id := getTable(idx, v6).ID
	r, err := d.Reply(id)
	if err != nil {
		return 0, err
	}
	m, ok := r.Msg.(*interfaces.SwInterfaceGetTableReply)
	if !ok {
		return 0, fmt.Errorf("%s: got %T", id, r.Msg)
	}
	return m.VrfID, nil
}

// InterfaceVRF describes the value that an Interface in a VRF other than 0 derives.
func InterfaceVRF() *descriptor.Descriptor {
	return descriptor.Spec[*ligato.Interface, *ifaceVRF]{
		Name: "interface-vrf", Prefix: "vpp/interface/*/vrf/", Tagged: true,
		Compile: descriptor.NoMessage[*ligato.Interface, *ifaceVRF], Message: func(*ifaceVRF) *ligato.Interface { return nil },
		Equal: func(have, want *ifaceVRF) bool { return *have == *want },
		Dependencies: func(v *ifaceVRF) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: descriptor.VRFKey(v.vrf, v.v6)}}
		},
		Claims: func(v *ifaceVRF) []string { return []string{vrfClaim(v.iface, v.v6)} },
		Create: func(w *descriptor.World, v *ifaceVRF) ([]descriptor.Op, error) { return v.setVRF(w, v.vrf) },
		Delete: func(w *descriptor.World, v *ifaceVRF) ([]descriptor.Op, error) { return v.setVRF(w, 0) },
		Dumps: func(w *descriptor.World, c descriptor.Candidates) (out []descriptor.Request) {
			for _, i := range ownInterfaces(w, c) {
				out = append(out, getTable(i.Index, false), getTable(i.Index, true))
			}
			return out
		},
		Retrieve: func(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, _ error) {
			for _, i := range ownInterfaces(w, c) {
				for _, v6 := range []bool{false, true} {
					vrf, err := tableOf(d, i.Index, v6)
					if err != nil {
						return nil, err
					}
					if vrf == 0 {
						continue
					}
					out = append(out, descriptor.Found{
						Key: kv.InterfaceVrfKey(i.Name, vrf, v6), Base: kv.InterfaceKey(i.Name), Ours: i.Ours,
						State: &ifaceVRF{iface: i.Name, vrf: vrf, v6: v6},
					})
				}
			}
			return out, nil
		},
	}.Descriptor()
}

func vrfClaim(iface string, v6 bool) string { return "vrf " + strconv.FormatBool(v6) + " of " + iface }

func (v *ifaceVRF) setVRF(w *descriptor.World, vrf uint32) ([]descriptor.Op, error) {
	idx, err := w.Index(v.iface)
	if err != nil {
		return nil, err
	}
	return []descriptor.Op{{Call: descriptor.Write(&interfaces.SwInterfaceSetTable{SwIfIndex: idx, IsIPv6: v.v6, VrfID: vrf})}}, nil
}
