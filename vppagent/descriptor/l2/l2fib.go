package l2

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// l2Address is one MAC address of a bridge domain of ours.
type l2Address struct {
	domain   string
	mac      [6]byte
	drop     bool
	iface    string // "" if drop
	static   bool
	bvi      bool
	spelling string // of mac in the message: it is part of the key
}

// L2FIB describes ligato's FIBEntry. VPP keeps the FIB entries of a deleted bridge domain, and shows them in the next domain that
// gets its index: entries are removed before their domain.
func L2FIB() *descriptor.Descriptor {
	return descriptor.Spec[*ligato.FIBEntry, *l2Address]{
		Name: "l2-fib", Prefix: "config/vpp/l2/v2/fib/",
		Compile: compileL2Address, Message: (*l2Address).entryMessage,
		Equal: func(have, want *l2Address) bool {
			return have.drop == want.drop && have.iface == want.iface && have.static == want.static && have.bvi == want.bvi
		},
		Dependencies: func(a *l2Address) []descriptor.Dependency {
			deps := []descriptor.Dependency{{Key: kv.BridgeDomainKey(a.domain)}}
			if !a.drop { // VPP refuses an interface that is in no bridge domain
				deps = append(deps, descriptor.Dependency{Key: kv.InterfaceKey(a.iface), Bond: descriptor.Dies}, descriptor.Dependency{Key: kv.BridgeDomainInterfaceKey(a.domain, a.iface)})
			}
			return deps
		},
		Create:   func(w *descriptor.World, a *l2Address) ([]descriptor.Op, error) { return a.sendEntry(w, true) },
		Update:   func(w *descriptor.World, _, want *l2Address) ([]descriptor.Op, error) { return want.sendEntry(w, true) }, // replaces
		Delete:   func(w *descriptor.World, a *l2Address) ([]descriptor.Op, error) { return a.sendEntry(w, false) },
		Dumps:    l2FIBDumps,
		Retrieve: retrieveL2FIB,
	}.Descriptor()
}

func l2FIBRequest() descriptor.Request {
	return descriptor.DumpRequest("l2_fib_table_dump", &l2.L2FibTableDump{BdID: descriptor.None})
}

// l2FIBDumps dumps the table, which may be large, only if a candidate exists.
func l2FIBDumps(_ *descriptor.World, c descriptor.Candidates) (out []descriptor.Request) {
	c.Each(func(string, any, bool) {
		if out == nil {
			out = append(bridgeRequests(), l2FIBRequest())
		}
	})
	return out
}

func compileL2Address(_ string, m *ligato.FIBEntry) (*l2Address, error) {
	a := &l2Address{
		domain: m.GetBridgeDomain(), drop: m.GetAction() == ligato.FIBEntry_DROP, iface: m.GetOutgoingInterface(),
		static: m.GetStaticConfig(), bvi: m.GetBridgedVirtualInterface(), spelling: m.GetPhysAddress(),
	}
	switch {
	case a.domain == "":
		return nil, errors.New("bridge_domain: empty")
	case a.spelling == "":
		return nil, errors.New("phys_address: empty")
	case m.GetAction() != ligato.FIBEntry_FORWARD && !a.drop:
		return nil, fmt.Errorf("action: unknown %d", m.GetAction())
	case a.drop && (a.iface != "" || a.bvi):
		return nil, errors.New("action: DROP has no outgoing_interface")
	case !a.drop && a.iface == "":
		return nil, errors.New("outgoing_interface: empty")
	}
	if a.drop {
		a.static = true // VPP has no other drop entries
	}
	var err error
	a.mac, err = descriptor.ParseMAC("phys_address", a.spelling)
	return a, err
}

func (a *l2Address) entryMessage() *ligato.FIBEntry {
	m := &ligato.FIBEntry{
		PhysAddress: a.spelling, BridgeDomain: a.domain, OutgoingInterface: a.iface, StaticConfig: a.static, BridgedVirtualInterface: a.bvi,
	}
	if a.drop {
		m.Action = ligato.FIBEntry_DROP
	}
	return m
}

func (a *l2Address) sendEntry(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	id, err := bridgeID(w, a.domain)
	if err != nil {
		return nil, err
	}
	m := &l2.L2fibAddDel{IsAdd: add, BdID: id, Mac: a.mac, SwIfIndex: interface_types.InterfaceIndex(descriptor.None), StaticMac: a.static, FilterMac: a.drop, BviMac: a.bvi}
	if !a.drop {
		if m.SwIfIndex, err = w.Index(a.iface); err != nil {
			return nil, err
		}
	}
	return []descriptor.Op{{Call: descriptor.Write(m), Gone: !add}}, nil
}

// retrieveL2FIB looks up the candidates only: the table is full of entries that VPP has learnt.
func retrieveL2FIB(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	if len(l2FIBDumps(w, c)) == 0 {
		return nil, nil
	}
	all, err := descriptor.Details[*l2.L2FibTableDetails](d, l2FIBRequest().ID)
	if err != nil {
		return nil, err
	}
	type place struct {
		domain uint32
		mac    [6]byte
	}
	inVPP := map[place]*l2.L2FibTableDetails{}
	for _, m := range all {
		inVPP[place{m.BdID, m.Mac}] = m
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		a := state.(*l2Address)
		id, err := bridgeID(w, a.domain)
		if err != nil || !wanted && c.Wanted(key) != nil {
			return
		}
		m := inVPP[place{id, a.mac}]
		if m == nil {
			return
		}
		got := *a
		got.drop, got.static, got.bvi = m.FilterMac, m.StaticMac, m.BviMac
		if i, ok := w.Interface(a.iface); !ok || i.Index != uint32(m.SwIfIndex) {
			got.iface = w.Name(uint32(m.SwIfIndex))
		}
		out = append(out, descriptor.Found{Key: key, State: &got})
	})
	return out, nil
}
