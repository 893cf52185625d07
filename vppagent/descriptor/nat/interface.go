package nat

import (
	"errors"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

const (
	natInterfacePrefix    = "config/vpp/nat/v2/nat44-interface/"
	idNATInterfaces       = "nat44_interface_dump"
	idNATOutputInterfaces = "nat44_ed_output_interface_get"
)

// natInterface is NAT44 on an interface. Inside and outside are roles of the input feature; with output VPP has no roles.
type natInterface struct {
	name                    string
	inside, outside, output bool
}

// Nat44Interface describes ligato's Nat44Interface. VPP accepts either the output feature or the input feature's roles on an
// interface, never both (−81), so with output_feature the roles have no effect.
//
// The interface's access lists are made before NAT and removed after it, so that NAT translates no packet that they would deny;
// the list of source ranges is a condition.
func Nat44Interface() *descriptor.Descriptor {
	d := descriptor.Spec[*nat.Nat44Interface, *natInterface]{
		Name: "nat44-interface", Prefix: natInterfacePrefix, Claims: func(i *natInterface) []string { return []string{acl.NATClaim(i.name)} },
		Compile: func(_ string, m *nat.Nat44Interface) (*natInterface, error) {
			switch {
			case m.GetName() == "":
				return nil, errors.New("name: empty")
			case m.GetOutputFeature():
				return &natInterface{name: m.GetName(), output: true}, nil
			case !m.GetNatInside() && !m.GetNatOutside():
				return nil, errors.New("nat_inside: neither this nor nat_outside nor output_feature is set")
			}
			return &natInterface{name: m.GetName(), inside: m.GetNatInside(), outside: m.GetNatOutside()}, nil
		},
		Message: func(i *natInterface) *nat.Nat44Interface {
			return &nat.Nat44Interface{Name: i.name, NatInside: i.inside, NatOutside: i.outside, OutputFeature: i.output}
		},
		Equal: func(have, want *natInterface) bool { return *have == *want },
		Dependencies: func(i *natInterface) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.Nat44GlobalKey}, {Key: kv.InterfaceKey(i.name), Pods: true}, {Key: kv.InterfaceACLsKey(i.name), Loose: true}, {Without: acl.RestrictedClaim}}
		},
		Create: func(w *descriptor.World, i *natInterface) ([]descriptor.Op, error) {
			return changeRoles(w, &natInterface{name: i.name}, i)
		},
		Update: changeRoles,
		Delete: func(w *descriptor.World, i *natInterface) ([]descriptor.Op, error) {
			return changeRoles(w, i, &natInterface{name: i.name})
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{
				descriptor.DumpRequest(idNATInterfaces, &nat44_ed.Nat44InterfaceDump{}),
				descriptor.AskRequest(idNATOutputInterfaces, &nat44_ed.Nat44EdOutputInterfaceGet{}),
			}
		},
		Retrieve: retrieveNATInterfaces,
	}.Descriptor()
	d.Nodes = natNodes
	d.After = []string{"reject-route"} // so that a rejected packet gets no session towards the default route
	d.Derived = func(state any) []descriptor.Derived {
		return []descriptor.Derived{{Key: kv.SourceRangesEnforcedKey, State: acl.NATPart(state.(*natInterface).name)}}
	}
	d.Ready = func(w *descriptor.World, have, want any, _ func(key string) any) error {
		if have != nil {
			return nil
		}
		return acl.ReadyInterface(w, want.(*natInterface).name)
	}
	return d
}

// changeRoles adds missing roles before it removes superfluous ones, so that a packet always meets NAT. Between the two features
// it removes first, because VPP refuses both. It removes only roles that are set: removing another one orphans a feature in VPP
// for good (nat44_interface_add_del_feature, VPP 24.06).
//
// An interface is never outside alone: nat44-ed would make a session for every flow that it forwards there, and translate the
// answers for as long as the flow lasts (nat44_ed_not_translate, VPP 25.10).
func changeRoles(w *descriptor.World, have, want *natInterface) ([]descriptor.Op, error) {
	idx, err := w.Index(want.name)
	if err != nil {
		return nil, err
	}
	role := func(add bool, flag nat_types.NatConfigFlags) descriptor.Op {
		op := descriptor.Op{Gone: !add, Call: descriptor.Write(&nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: add, Flags: flag, SwIfIndex: idx})}
		if n := mappingsInVPP(w); n > 0 && flag == nat_types.NAT_IS_OUTSIDE {
			op.Cost, op.Apart = w.Cost.OutsideInterface(n), apartOutside
		}
		return op
	}
	var add, del []descriptor.Op
	if want.inside && !have.inside {
		add = append(add, role(true, nat_types.NAT_IS_INSIDE))
	}
	if want.outside && !have.outside {
		add = append(add, role(true, nat_types.NAT_IS_OUTSIDE))
	}
	if have.outside && !want.outside {
		del = append(del, role(false, nat_types.NAT_IS_OUTSIDE))
	}
	if have.inside && !want.inside {
		del = append(del, role(false, nat_types.NAT_IS_INSIDE))
	}
	if len(add) == 2 {
		bothRoles(add, role)
	}
	if len(del) == 2 {
		del[0].Call.Joined, del[0].Call.AtOnce = true, true
	}
	if have.output != want.output {
		op := descriptor.Op{Gone: !want.output, Call: descriptor.Write(&nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: want.output, SwIfIndex: idx})}
		if want.output {
			return append(del, op), nil
		}
		return append([]descriptor.Op{op}, add...), nil
	}
	return append(add, del...), nil
}

// apartOutside is Op.Apart of an interface's outside role: no mapping has this number.
const apartOutside = 1 << 63

// mappingsInVPP is the number of mappings in VPP; 0: none, or not known.
func mappingsInVPP(w *descriptor.World) (n int) {
	if w.Having == nil {
		return 0
	}
	for _, state := range w.Having(dnat44Prefix) {
		if d, ok := state.(*dnat); ok {
			n += len(d.mappings)
		}
	}
	return n
}

// bothRoles sets inside and outside together. If VPP refuses one of them, the agent removes the other again: either alone is
// another NAT, whose sessions last.
func bothRoles(add []descriptor.Op, role func(add bool, flag nat_types.NatConfigFlags) descriptor.Op) {
	isInside := false
	add[0].Call.Joined, add[0].Call.AtOnce = true, true
	add[0].Then = func(vpp.Reply) []descriptor.Op { isInside = true; return nil }
	add[1].Then = func(vpp.Reply) []descriptor.Op {
		if isInside {
			return nil
		}
		return []descriptor.Op{role(false, nat_types.NAT_IS_OUTSIDE)}
	}
	add[1].Else = func() []descriptor.Op {
		if !isInside {
			return nil
		}
		return []descriptor.Op{role(false, nat_types.NAT_IS_INSIDE)}
	}
}

// retrieveNATInterfaces looks up the candidates, because an interface may have several names.
func retrieveNATInterfaces(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	features, err := descriptor.Details[*nat44_ed.Nat44InterfaceDetails](d, idNATInterfaces)
	if err != nil {
		return nil, err
	}
	outputs, err := descriptor.Details[*nat44_ed.Nat44EdOutputInterfaceDetails](d, idNATOutputInterfaces)
	if err != nil {
		return nil, err
	}
	inVPP := map[uint32]natInterface{}
	for _, m := range features {
		inVPP[uint32(m.SwIfIndex)] = natInterface{inside: m.Flags&nat_types.NAT_IS_INSIDE != 0, outside: m.Flags&nat_types.NAT_IS_OUTSIDE != 0}
	}
	for _, m := range outputs {
		inVPP[uint32(m.SwIfIndex)] = natInterface{output: true}
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		name := state.(*natInterface).name
		i, ok := w.Interface(name)
		if !ok || !wanted && c.Wanted(key) != nil {
			return
		}
		if got, ok := inVPP[i.Index]; ok {
			got.name = name
			out = append(out, descriptor.Found{Key: key, State: &got})
		}
	})
	return out, nil
}

// padded reports how mappings with few backends are made: see dnat44.
func padded(w *descriptor.World) bool {
	n := w.Options.NATWorkers
	if n == 0 {
		n = w.Workers
	}
	return n <= 1
}

// NATInterface implements acl.Translated.
func (i *natInterface) NATInterface() string { return i.name }
