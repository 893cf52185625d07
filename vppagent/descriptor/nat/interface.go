package nat

import (
	"errors"
	"fmt"
	"slices"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/arrange"
)

const (
	natInterfacePrefix    = "config/vpp/nat/v2/nat44-interface/"
	idNATInterfaces       = "nat44_interface_dump"
	idNATOutputInterfaces = "nat44_ed_output_interface_get"
)

// natInterface is NAT44 on an interface. Inside and outside are roles of the input feature; with output VPP has no roles.
type natInterface struct {
	name string
	arrange.Arrangement
}

// Nat44Interface describes ligato's Nat44Interface. VPP accepts either the output feature or the input feature's roles on an
// interface, never both (−81), so with output_feature the roles have no effect. A pod's interface gets both roles as arrange.OfPod says.
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
				return &natInterface{m.GetName(), arrange.Regular(false, false, true)}, nil
			case !m.GetNatInside() && !m.GetNatOutside():
				return nil, errors.New("nat_inside: neither this nor nat_outside nor output_feature is set")
			}
			return &natInterface{m.GetName(), arrange.Regular(m.GetNatInside(), m.GetNatOutside(), false)}, nil
		},
		Message: (*natInterface).message,
		Equal:   func(have, want *natInterface) bool { return *have == *want },
		// The role outside leaves first: a pod's interface with both roles, while VPP forwards, is an earlier agent's (PodPart).
		Recreate: func(have, want *natInterface) bool { return have.Outside && want.Arrangement == arrange.OfPod() },
		Dependencies: func(i *natInterface) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.Nat44GlobalKey}, {Key: kv.InterfaceKey(i.name), Pods: true}, {Key: kv.InterfaceACLsKey(i.name), Loose: true}, {Without: acl.RestrictedClaim}}
		},
		Derived: func(i *natInterface) []descriptor.Derived {
			return []descriptor.Derived{{Key: kv.SourceRangesEnforcedKey, State: acl.NATPart(i.name)}}
		},
		Create: func(w *descriptor.World, i *natInterface) ([]descriptor.Op, error) {
			return rearrange(w, i.name, arrange.Arrangement{}, i.Arrangement)
		},
		Update: func(w *descriptor.World, have, want *natInterface) ([]descriptor.Op, error) {
			return rearrange(w, want.name, have.Arrangement, want.Arrangement)
		},
		Delete: func(w *descriptor.World, i *natInterface) ([]descriptor.Op, error) {
			return rearrange(w, i.name, i.Arrangement, arrange.Arrangement{})
		},
		Retrieve: retrieveNATInterfaces,
	}.Descriptor()
	d.Dumps = natInterfaceDumps
	d.Nodes = natNodes
	d.After = []string{"reject-route"} // so that a rejected packet gets no session towards the default route
	d.Merge = func(own any, parts []any) any {
		if i, ok := own.(*natInterface); ok && len(parts) > 0 && i.Arrangement == arrange.Regular(true, true, false) {
			return &natInterface{i.name, arrange.OfPod()}
		}
		return own
	}
	d.Ready = readyNATInterface
	return d
}

func readyNATInterface(w *descriptor.World, have, want any, sure func(key string) any) error {
	i := want.(*natInterface)
	if sure(kv.Nat44GlobalKey) == nil {
		switch {
		case i.Arrangement == arrange.OfPod():
			return errors.New("VPP does not forward yet what NAT44 does not translate")
		case i.Inside && i.Outside && w.OfPod(i.name): // it would keep both roles: see PodPart
			return errors.New("VPP still forwards what NAT44 does not translate")
		}
	}
	if i.Arrangement == arrange.OfPod() && !w.OfPod(i.name) {
		return fmt.Errorf("VPP's command line does not find the new interface %s by its name", i.name) // it gets both roles at the next attempt
	}
	if have != nil {
		return nil
	}
	return acl.ReadyInterface(w, i.name)
}

// message says what packets meet, whatever the roles: the journal must name every interface that has a part of NAT44.
func (i *natInterface) message() *nat.Nat44Interface {
	if i.Output {
		return &nat.Nat44Interface{Name: i.name, OutputFeature: true}
	}
	both := i.Nodes[arrange.Classify] > 0
	return &nat.Nat44Interface{Name: i.name, NatInside: i.Inside || i.Nodes[arrange.In2Out] > 0 || both, NatOutside: i.Outside || i.Nodes[arrange.Out2In] > 0 || both}
}

// PodPart is the part that the agent gives to the desired state of NAT44 on an interface: it is a pod's, and gets both roles as arrange.OfPod says. nil: it is
// none's, or VPP is not to forward what NAT44 does not translate.
//
// An interface that has both roles while VPP forwards got them from an earlier agent. It keeps them until NAT44 leaves it: to remove one takes VPP as
// long as to add it, and with workers packets would meet the role inside alone meanwhile.
func PodPart(w *descriptor.World, want, have any) any {
	i, ok := want.(*natInterface)
	global, enabled := w.Wanted(kv.Nat44GlobalKey).(*nat44Global)
	if !ok || !enabled || !global.forwarding {
		return nil
	}
	if !w.OfPod(i.name) {
		return nil
	}
	if h, ok := have.(*natInterface); ok && h.Inside && h.Outside && forwards(w) {
		return nil
	}
	return struct{}{}
}

// forwards reports that VPP forwards what NAT44 does not translate.
func forwards(w *descriptor.World) bool {
	return slices.ContainsFunc(w.Having(kv.Nat44GlobalKey), func(g any) bool { return g.(*nat44Global).forwarding })
}

// rearrange changes NAT44 on an interface. VPP reads all requests at once: no packet meets a state in between, if VPP has no workers. If VPP refuses one
// of several, NAT44 leaves the interface: a part of an arrangement is another NAT, whose sessions last. The agent retries.
func rearrange(w *descriptor.World, name string, have, want arrange.Arrangement) ([]descriptor.Op, error) {
	idx, err := w.Index(name)
	if err != nil {
		return nil, err
	}
	steps := have.To(want)
	ops := requests(w, idx, steps)
	if len(ops) < 2 {
		return ops, nil
	}
	refused := false
	for i, s := range steps {
		answered := func(accepted bool) []descriptor.Op {
			if refused = refused || !accepted; accepted {
				have = have.After(s)
			}
			if !refused || i < len(steps)-1 {
				return nil
			}
			return requests(w, idx, have.To(arrange.Arrangement{}))
		}
		ops[i].Then = func(vpp.Reply) []descriptor.Op { return answered(true) }
		ops[i].Else = func() []descriptor.Op { return answered(false) }
	}
	return ops, nil
}

// requests are the requests of steps, which VPP reads at once.
func requests(w *descriptor.World, idx interface_types.InterfaceIndex, steps []arrange.Step) []descriptor.Op {
	ops := make([]descriptor.Op, len(steps))
	for i, s := range steps {
		ops[i] = descriptor.Op{Gone: !s.On, Call: s.Call(idx, w.Workers)}
		ops[i].Call.Joined = i < len(steps)-1
		ops[i].Call.AtOnce = i == 0 && len(steps) > 1
		if n := mappingsInVPP(w); n > 0 && s.Part == arrange.Outside {
			ops[i].Cost, ops[i].Apart = w.Cost.OutsideInterface(n), apartOutside
		}
	}
	return ops
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

// shown reports that the agent asks VPP for the nodes of an interface with NAT44: they do not follow from its roles. If an interface that is no
// pod's has the role inside alone, its tag may have changed.
func shown(i *descriptor.Iface, a arrange.Arrangement) bool {
	return i.Nameable() && (i.OfPod() || a.Inside && !a.Outside)
}

// natInterfaceDumps asks for roles first, and then for the nodes that do not follow from them.
func natInterfaceDumps(w *descriptor.World, c descriptor.Candidates, known *descriptor.Dump) []descriptor.Request {
	out := []descriptor.Request{
		descriptor.DumpRequest(idNATInterfaces, &nat44_ed.Nat44InterfaceDump{}),
		descriptor.AskRequest(idNATOutputInterfaces, &nat44_ed.Nat44EdOutputInterfaceGet{}),
	}
	if !known.Has(idNATInterfaces) || !known.Has(idNATOutputInterfaces) {
		return out
	}
	inVPP, err := rolesInVPP(known)
	if err != nil {
		return out
	}
	c.Each(func(_ string, state any, _ bool) {
		if i, ok := w.Interface(state.(*natInterface).name); ok && shown(i, inVPP[i.Index]) {
			ask := descriptor.ShowFeatures(i.VPPName)
			out = append(out, descriptor.AskRequest(ask.Cmd, ask))
		}
	})
	return out
}

// rolesInVPP has the arrangements of interfaces with the nodes that follow from their roles.
func rolesInVPP(d *descriptor.Dump) (map[uint32]arrange.Arrangement, error) {
	roles, err := descriptor.Details[*nat44_ed.Nat44InterfaceDetails](d, idNATInterfaces)
	if err != nil {
		return nil, err
	}
	outputs, err := descriptor.Details[*nat44_ed.Nat44EdOutputInterfaceDetails](d, idNATOutputInterfaces)
	if err != nil {
		return nil, err
	}
	inVPP := map[uint32]arrange.Arrangement{}
	for _, m := range roles {
		inVPP[uint32(m.SwIfIndex)] = arrange.Regular(m.Flags&nat_types.NAT_IS_INSIDE != 0, m.Flags&nat_types.NAT_IS_OUTSIDE != 0, false)
	}
	for _, m := range outputs {
		inVPP[uint32(m.SwIfIndex)] = arrange.Regular(false, false, true)
	}
	return inVPP, nil
}

// retrieveNATInterfaces looks up the candidates, because an interface may have several names.
func retrieveNATInterfaces(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	inVPP, err := rolesInVPP(d)
	if err != nil {
		return nil, err
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		name := state.(*natInterface).name
		i, ok := w.Interface(name)
		if !ok || !wanted && c.Wanted(key) != nil {
			return
		}
		got := &natInterface{name, inVPP[i.Index]}
		if shown(i, got.Arrangement) {
			r, asked := d.Reply(descriptor.ShowFeatures(i.VPPName).Cmd)
			if _, refused := errors.AsType[*vpp.Retval](asked); refused {
				return // deleted since the dump of interfaces: VPP sends an event
			}
			if asked == nil {
				got.Nodes, asked = arrange.NodesShown(r)
			}
			err = errors.Join(err, asked)
		}
		if got.Arrangement != (arrange.Arrangement{}) {
			out = append(out, descriptor.Found{Key: key, State: got})
		}
	})
	return out, err
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

// natNodes are the graph nodes of NAT44 on an interface; none if the agent's dumps show them.
func natNodes(w *descriptor.World, have any) []descriptor.Node {
	i := have.(*natInterface)
	if in, ok := w.Interface(i.name); ok && shown(in, i.Arrangement) {
		return nil
	}
	return i.NodesOf(w.Workers)
}

// MeetsBoth reports that packets of an interface meet the node of both roles, as the answer to descriptor.ShowFeatures says.
func MeetsBoth(r vpp.Reply) bool {
	nodes, err := arrange.NodesShown(r)
	return err == nil && nodes[arrange.Classify] > 0
}
