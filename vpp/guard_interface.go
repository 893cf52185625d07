package vpp

import (
	"fmt"

	"go.fd.io/govpp/api"
	featureapi "go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
)

// flags are NAT features of an interface.
type flags uint8

const (
	inside flags = 1 << iota
	outside
	outputFeature
	ownNode // the node of both roles, put on the arc by feature_enable_disable
)

func (f flags) nothing() bool { return f == 0 }

// ownNodeChange is the effect of feature_enable_disable on an interface; false: none.
func ownNodeChange(m *featureapi.FeatureEnableDisable) (flagChange, bool) {
	return flagChange{m.Enable, ownNode}, m.FeatureName == "nat44-ed-classify" || m.FeatureName == "nat44-handoff-classify"
}

// flagChange sets or clears one of them.
type flagChange struct {
	add  bool
	flag flags
}

func (c flagChange) applyTo(f flags) flags {
	if c.add {
		return f | c.flag
	}
	return f &^ c.flag
}

// role returns the role that VPP reads from the flags of nat44_interface_add_del_feature: inside, else outside.
func role(f nat_types.NatConfigFlags) flags {
	if f&nat_types.NAT_IS_INSIDE != 0 {
		return inside
	}
	return outside
}

func (f flags) String() string {
	switch f &^ ownNode {
	case inside:
		return "inside"
	case outside:
		return "outside"
	case inside | outside:
		return "inside and outside"
	}
	return "nothing"
}

// dumpedInterfaces records all roles, or all output features.
func (g *Guard) dumpedInterfaces(req api.Message, details []api.Message) {
	dumped := make(map[uint32]flags, len(details))
	for _, d := range details {
		switch d := d.(type) {
		case *nat44_ed.Nat44InterfaceDetails:
			var f flags
			if d.Flags&nat_types.NAT_IS_INSIDE != 0 {
				f |= inside
			}
			if d.Flags&nat_types.NAT_IS_OUTSIDE != 0 {
				f |= outside
			}
			dumped[uint32(d.SwIfIndex)] = f
		case *nat44_ed.Nat44EdOutputInterfaceDetails:
			dumped[uint32(d.SwIfIndex)] = outputFeature
		}
	}
	all := func(flags) bool { return true }
	if _, ok := req.(*nat44_ed.Nat44InterfaceDump); ok {
		for i, c := range g.roles.cells { // no dump of roles shows the node
			if c.acked&ownNode != 0 {
				dumped[i] |= ownNode
			}
		}
		g.roles.replace(all, dumped)
		return
	}
	if m := req.(*nat44_ed.Nat44EdOutputInterfaceGet); m.Cursor == 0 { // a dump from the middle is incomplete
		g.outputs.replace(all, dumped)
	}
}

const (
	featureMessage = "nat44_interface_add_del_feature"
	outputMessage  = "nat44_ed_add_del_output_interface"
)

func interfaceRules() []Rule {
	return []Rule{
		{
			Name: "role-not-set", Messages: []string{featureMessage}, Stateful: true,
			Source: "nat44_ed.c nat44_ed_del_interface, VPP 24.06",
			Harm:   "deletes the whole record of the interface and orphans nat-pre-out2in on it for good",
			judge: func(g *Guard, msg api.Message) string {
				m := msg.(*nat44_ed.Nat44InterfaceAddDelFeature)
				if have := g.roles.expectedState(uint32(m.SwIfIndex)); !m.IsAdd && have&role(m.Flags) == 0 {
					return fmt.Sprintf("interface %d is known as %s, not as %s: dump the interfaces first", m.SwIfIndex, have, role(m.Flags))
				}
				return ""
			},
			hinges: roleHinges,
		}, {
			Name: "role-both", Messages: []string{featureMessage},
			Source: "nat44_ed_api.c vl_api_nat44_interface_add_del_feature_t_handler, VPP 24.06",
			Harm:   "only inside is taken: on an interface that is not outside too, packets to an LB mapping go to 0.0.0.0",
			judge: func(_ *Guard, msg api.Message) string {
				const both = nat_types.NAT_IS_INSIDE | nat_types.NAT_IS_OUTSIDE
				if msg.(*nat44_ed.Nat44InterfaceAddDelFeature).Flags&both == both {
					return "inside and outside in one message: send two"
				}
				return ""
			},
		}, {
			Name: "role-on-output", Messages: []string{featureMessage}, Stateful: true,
			Source: "nat44_ed.c nat44_ed_add_interface, VPP 24.06",
			Harm:   "refused (-81): the role would be missing",
			judge: func(g *Guard, msg api.Message) string {
				m := msg.(*nat44_ed.Nat44InterfaceAddDelFeature)
				if m.IsAdd && g.outputs.expectedState(uint32(m.SwIfIndex)) != 0 {
					return fmt.Sprintf("interface %d has the output feature", m.SwIfIndex)
				}
				return ""
			},
		}, {
			Name: "output-on-role", Messages: []string{outputMessage}, Stateful: true,
			Source: "nat44_ed.c nat44_ed_add_output_interface, VPP 24.06",
			Harm:   "refused (-81): the output feature would be missing",
			judge: func(g *Guard, msg api.Message) string {
				m := msg.(*nat44_ed.Nat44EdAddDelOutputInterface)
				if have := g.roles.expectedState(uint32(m.SwIfIndex)); m.IsAdd && have&^ownNode != 0 {
					return fmt.Sprintf("interface %d is %s", m.SwIfIndex, have)
				}
				return ""
			},
		}, {
			Name: "node-without-role", Messages: []string{"feature_enable_disable"}, Stateful: true,
			Source: "nat44_ed.c nat44_ed_add_interface (ip4_sv_reass_enable_disable_with_refcnt), VPP 24.06",
			Harm:   "without a role no reassembly reads the ports: NAT translates by whatever the buffer had before",
			judge: func(g *Guard, msg api.Message) string {
				m := msg.(*featureapi.FeatureEnableDisable)
				c, of := ownNodeChange(m)
				if have := g.roles.expectedState(uint32(m.SwIfIndex)); of && c.add && have&inside == 0 {
					return fmt.Sprintf("interface %d is known as %s, not as inside: dump the interfaces first", m.SwIfIndex, have)
				}
				return ""
			},
		}, {
			Name: "role-under-node", Messages: []string{featureMessage}, Stateful: true,
			Source: "nat44_ed.c nat44_ed_add_interface, nat44_ed_del_interface, VPP 24.06",
			Harm:   "with the second role the node is on the arc twice, and packets are translated twice; without the first it stays, and sees no ports",
			judge: func(g *Guard, msg api.Message) string {
				m := msg.(*nat44_ed.Nat44InterfaceAddDelFeature)
				have := g.roles.expectedState(uint32(m.SwIfIndex))
				if have&ownNode != 0 && m.IsAdd == (role(m.Flags) == outside) {
					return fmt.Sprintf("interface %d has the node of both roles by feature_enable_disable: disable that first", m.SwIfIndex)
				}
				return ""
			},
		},
	}
}

// roleHinges reports whether a role to delete exists only if all outstanding messages succeed.
func roleHinges(g *Guard, msg api.Message) bool {
	m := msg.(*nat44_ed.Nat44InterfaceAddDelFeature)
	acked, ops := g.roles.flying(uint32(m.SwIfIndex))
	doubt := acked&role(m.Flags) == 0
	for _, o := range ops {
		doubt = doubt || !o.add && o.flag == role(m.Flags)
	}
	return !m.IsAdd && doubt
}
