package descriptor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
)

// address is an address of an interface of ours: derived, with the interface as its base.
type address struct {
	iface  string
	prefix netip.Prefix
	vrf    uint32
}

func addressRequest(idx uint32, v6 bool) Request {
	id := "ip_address_dump " + strconv.FormatUint(uint64(idx), 10) + " " + strconv.FormatBool(v6)
	return dump(id, &ip.IPAddressDump{SwIfIndex: interface_types.InterfaceIndex(idx), IsIPv6: v6})
}

// Address describes what an Interface derives for each of its addresses.
func Address() *Descriptor {
	return Spec[*ligato.Interface, *address]{
		Name: "address", Prefix: "vpp/interface/*/address/static/", Tagged: true,
		Compile: noMessage[*ligato.Interface, *address], Message: func(*address) *ligato.Interface { return nil },
		Equal: func(have, want *address) bool { return *have == *want },
		Dependencies: func(a *address) []Dependency {
			deps := []Dependency{{Without: vrfClaim(a.iface, a.prefix.Addr().Is6())}}
			if a.vrf == 0 {
				return deps
			}
			// VPP does not move an interface that has addresses.
			return append(deps, Dependency{Key: kv.InterfaceVrfKey(a.iface, a.vrf, a.prefix.Addr().Is6())})
		},
		Claims: func(a *address) []string { return []string{"address " + a.prefix.String()} },
		Create: func(w *World, a *address) ([]Op, error) { return a.message(w, true) },
		Delete: func(w *World, a *address) ([]Op, error) { return a.message(w, false) },
		Dumps: func(w *World, c Candidates) (out []Request) {
			for _, i := range ownInterfaces(w, c) {
				out = append(out, addressRequest(i.Index, false), addressRequest(i.Index, true), getTable(i.Index, false), getTable(i.Index, true))
			}
			return out
		},
		Retrieve: retrieveAddresses,
	}.Descriptor()
}

func (a *address) message(w *World, add bool) ([]Op, error) {
	idx, err := w.index(a.iface)
	if err != nil {
		return nil, err
	}
	return []Op{{Gone: !add, Call: write(&interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: idx, IsAdd: add, Prefix: ip_types.AddressWithPrefix(toPrefix(a.prefix)),
	})}}, nil
}

// ownInterfaces are those whose addresses and VRFs are ours: all of an interface of ours, and of an adopted one those
// wanted. Sorted by index.
func ownInterfaces(w *World, c Candidates) []*Iface {
	names := map[string]bool{}
	c.Each(func(_ string, state any, _ bool) {
		switch s := state.(type) {
		case *address:
			names[s.iface] = true
		case *ifaceVRF:
			names[s.iface] = true
		}
	})
	return slices.DeleteFunc(w.sorted(), func(i *Iface) bool { return !i.Ours && !names[i.Name] })
}

func retrieveAddresses(w *World, d *Dump, c Candidates) ([]Found, error) {
	var out []Found
	for _, i := range ownInterfaces(w, c) {
		for _, v6 := range []bool{false, true} {
			all, err := details[*ip.IPAddressDetails](d, addressRequest(i.Index, v6).ID)
			if err != nil {
				return nil, err
			}
			vrf, err := tableOf(d, i.Index, v6)
			if err != nil {
				return nil, err
			}
			for _, m := range all {
				a := &address{iface: i.Name, prefix: fromPrefix(ip_types.Prefix(m.Prefix)), vrf: vrf}
				if a.prefix.Addr().IsLinkLocalUnicast() && v6 {
					continue // VPP's own
				}
				key := kv.InterfaceAddressKey(i.Name, a.prefix.String())
				out = append(out, Found{Key: key, Base: kv.InterfaceKey(i.Name), State: a, Ours: i.Ours})
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

func getTable(idx uint32, v6 bool) Request {
	id := "sw_interface_get_table " + strconv.FormatUint(uint64(idx), 10) + " " + strconv.FormatBool(v6)
	return ask(id, &interfaces.SwInterfaceGetTable{SwIfIndex: interface_types.InterfaceIndex(idx), IsIPv6: v6})
}

// tableOf is the answer to getTable.
func tableOf(d *Dump, idx uint32, v6 bool) (uint32, error) {
	id := getTable(idx, v6).ID
	r, err := d.reply(id)
	if err != nil {
		return 0, err
	}
	m, ok := r.Msg.(*interfaces.SwInterfaceGetTableReply)
	if !ok {
		return 0, fmt.Errorf("%s: got %T", id, r.Msg)
	}
	return m.VrfID, nil
}

// InterfaceVRF describes what an Interface in a VRF other than 0 derives.
func InterfaceVRF() *Descriptor {
	return Spec[*ligato.Interface, *ifaceVRF]{
		Name: "interface-vrf", Prefix: "vpp/interface/*/vrf/", Tagged: true,
		Compile: noMessage[*ligato.Interface, *ifaceVRF], Message: func(*ifaceVRF) *ligato.Interface { return nil },
		Equal:        func(have, want *ifaceVRF) bool { return *have == *want },
		Dependencies: func(v *ifaceVRF) []Dependency { return []Dependency{{Key: vrfKey(v.vrf, v.v6)}} },
		Claims:       func(v *ifaceVRF) []string { return []string{vrfClaim(v.iface, v.v6)} },
		Create:       func(w *World, v *ifaceVRF) ([]Op, error) { return v.set(w, v.vrf) },
		Delete:       func(w *World, v *ifaceVRF) ([]Op, error) { return v.set(w, 0) },
		Dumps: func(w *World, c Candidates) (out []Request) {
			for _, i := range ownInterfaces(w, c) {
				out = append(out, getTable(i.Index, false), getTable(i.Index, true))
			}
			return out
		},
		Retrieve: func(w *World, d *Dump, c Candidates) (out []Found, _ error) {
			for _, i := range ownInterfaces(w, c) {
				for _, v6 := range []bool{false, true} {
					vrf, err := tableOf(d, i.Index, v6)
					if err != nil {
						return nil, err
					}
					if vrf == 0 {
						continue
					}
					out = append(out, Found{
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

func (v *ifaceVRF) set(w *World, vrf uint32) ([]Op, error) {
	idx, err := w.index(v.iface)
	if err != nil {
		return nil, err
	}
	return []Op{{Call: write(&interfaces.SwInterfaceSetTable{SwIfIndex: idx, IsIPv6: v.v6, VrfID: vrf})}}, nil
}

// noMessage is the Compile of what is derived only.
func noMessage[V proto.Message, S any](key string, _ V) (S, error) {
	var zero S
	return zero, &DerivedError{Key: key}
}
