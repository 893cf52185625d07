package vpp

import (
	"slices"

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
)

func (f flags) nothing() bool { return f == 0 }

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
	switch f {
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
		g.roles.replace(all, dumped)
		return
	}
	if m := req.(*nat44_ed.Nat44EdOutputInterfaceGet); m.Cursor == 0 { // a dump from the middle is incomplete
		g.outputs.replace(all, dumped)
	}
}

const featureMessage = "nat44_interface_add_del_feature"

func interfaceRules() []Rule {
	notSet := stateful("role-not-set", "nat44_ed.c nat44_ed_del_interface, VPP 24.06",
		"deletes the whole record of the interface and orphans nat-pre-out2in on it for good",
		func(g *Guard, m *nat44_ed.Nat44InterfaceAddDelFeature) string {
			have := g.roles.expectedState(uint32(m.SwIfIndex))
			return when(!m.IsAdd && have&role(m.Flags) == 0, "interface %d is known as %s, not as %s: dump the interfaces first", m.SwIfIndex, have, role(m.Flags))
		})
	notSet.hinges = roleHinges
	return []Rule{
		notSet,
		{
			Name: "role-both", Messages: []string{featureMessage},
			Source: "nat44_ed_api.c vl_api_nat44_interface_add_del_feature_t_handler, VPP 24.06",
			Harm:   "only inside is taken: on an interface that is not outside too, packets to an LB mapping go to 0.0.0.0",
			judge: func(_ *Guard, msg api.Message) string {
				const both = nat_types.NAT_IS_INSIDE | nat_types.NAT_IS_OUTSIDE
				return when(msg.(*nat44_ed.Nat44InterfaceAddDelFeature).Flags&both == both, "inside and outside in one message: send two")
			},
		},
		stateful("role-on-output", "nat44_ed.c nat44_ed_add_interface, VPP 24.06", "refused (-81): the role would be missing",
			func(g *Guard, m *nat44_ed.Nat44InterfaceAddDelFeature) string {
				return when(m.IsAdd && g.outputs.expectedState(uint32(m.SwIfIndex)) != 0, "interface %d has the output feature", m.SwIfIndex)
			}),
		stateful("output-on-role", "nat44_ed.c nat44_ed_add_output_interface, VPP 24.06", "refused (-81): the output feature would be missing",
			func(g *Guard, m *nat44_ed.Nat44EdAddDelOutputInterface) string {
				have := g.roles.expectedState(uint32(m.SwIfIndex))
				return when(m.IsAdd && have != 0, "interface %d is %s", m.SwIfIndex, have)
			}),
		stateful("node-without-role", "nat44_ed.c nat44_ed_add_interface, VPP 24.06",
			"without a role nothing reads the ports, and NAT translates by whatever the buffer had before",
			func(g *Guard, m *featureapi.FeatureEnableDisable) string {
				alone := m.Enable && slices.Contains(bothNodes(), m.FeatureName) && g.roles.expectedState(uint32(m.SwIfIndex))&inside == 0
				return when(alone, "interface %d is not known as inside: dump the interfaces first", m.SwIfIndex)
			}),
		stateful("role-under-node", "nat44_ed.c nat44_ed_add_interface, nat44_ed_del_interface, VPP 24.06",
			"with the role outside the node is on the arc twice, and packets are translated twice; without the role inside it sees no ports",
			func(g *Guard, m *nat44_ed.Nat44InterfaceAddDelFeature) string {
				own := func(node string) bool { return g.cnat.nodes[cnatPlace{m.SwIfIndex, node}] }
				return when(m.IsAdd == (role(m.Flags) == outside) && slices.ContainsFunc(bothNodes(), own),
					"interface %d has the node of both roles by feature_enable_disable: disable that first", m.SwIfIndex)
			}),
	}
}

// bothNodes are the names of the node of both roles, without and with workers.
func bothNodes() []string { return []string{"nat44-ed-classify", "nat44-handoff-classify"} }

// sendRole records a change of roles; VPP itself puts the node of both on the arc and removes it when the role outside changes.
func (g *Guard) sendRole(m *nat44_ed.Nat44InterfaceAddDelFeature) {
	g.roles.sendOp(uint32(m.SwIfIndex), flagChange{m.IsAdd, role(m.Flags)})
	for _, node := range bothNodes() {
		if role(m.Flags) == outside {
			delete(g.cnat.nodes, cnatPlace{m.SwIfIndex, node})
		}
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
