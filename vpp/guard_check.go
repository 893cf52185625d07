package vpp

import (
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/abf"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
)

// Rules returns all rules, in the order in which they apply.
func (g *Guard) Rules() []Rule {
	return slices.Concat(lbRules(), localRules(), mappingRules(), interfaceRules(), routeRules(), aclRules(), bridgeRules(), abfRules(), puntRules(), policerRules(), cnatRules(), classifyRules(), otherRules())
}

// Reset forgets VPP's state: a new connection may lead to another VPP.
func (g *Guard) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mappings, g.allLB = shadow[mappingKey, mapping, mappingChange]{}, false
	g.roles, g.outputs = shadow[uint32, flags, flagChange]{}, shadow[uint32, flags, flagChange]{}
	g.routes, g.workers, g.byteIPv6 = routes{}, 0, false
	g.forwarding, g.redirects, g.cnat, g.classifier, g.policers = forwarding{}, redirects{}, cnatShadow{}, classifier{}, policers{}
}

// Check returns nil or a *GuardError for msg. It takes a permitted message as sent: call it once per message, in the order
// of sending, and Observe for each answer. It refuses a message that would do harm if an earlier unanswered one failed; Do
// waits for that answer and calls Check again.
func (g *Guard) Check(msg api.Message) error {
	name := msg.GetMessageName()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rules == nil {
		g.index()
	}
	rules := g.rules[name]
	if len(rules) == 0 { // no rule applies, and no shadow changes
		return nil
	}
	g.view = g.mappingViewOf(msg)
	for i := range rules {
		if why := rules[i].judge(g, msg); why != "" {
			return &GuardError{Message: name, Rule: rules[i].Name, Why: why, Stateful: rules[i].Stateful, Absent: why == absent}
		}
	}
	for i := range rules {
		if rules[i].hinges != nil && rules[i].hinges(g, msg) {
			return &GuardError{Message: name, Rule: rules[i].Name, Why: "hinges on answers that are outstanding: wait for them", Stateful: true, outstanding: true}
		}
	}
	g.applyWrite(msg)
	return nil
}

func (g *Guard) index() {
	g.rules = map[string][]Rule{}
	for _, r := range g.Rules() {
		for _, m := range r.Messages {
			g.rules[m] = append(g.rules[m], r)
		}
	}
}

// applyWrite applies an outstanding write to the shadow.
func (g *Guard) applyWrite(msg api.Message) {
	g.cnat.sent(msg)
	g.classifier.sent(msg)
	if at, name, is := g.policers.applied(msg); is {
		g.policers.sendOp(at, name)
	}
	switch m := msg.(type) {
	case *nat44_ed.Nat44InterfaceAddDelFeature:
		g.sendRole(m)
	case *nat44_ed.Nat44EdAddDelOutputInterface:
		g.outputs.sendOp(uint32(m.SwIfIndex), flagChange{m.IsAdd, outputFeature})
	case *ip.IPRouteAddDel, *ip.IPRouteAddDelV2:
		k, c, _ := routeOp(msg)
		g.routes.sent(k, c)
	case *abf.AbfPolicyAddDel, *abf.AbfItfAttachAddDel:
		g.forwarding.sent(msg)
	case *ip.AddDelIPPuntRedirectV2:
		g.redirects.on.sendOp(redirectOf(m.Punt), present(m.IsAdd))
	default:
		if g.view.known {
			g.mappings.sendOp(g.view.key, g.view.op)
		}
	}
}

// Observe updates the shadow from the answer to a permitted message. Answers must arrive in the order of the Checks.
func (g *Guard) Observe(msg api.Message, reply Reply) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ok := reply.Err == nil
	g.cnat.answered(msg, reply)
	g.classifier.answered(msg, reply)
	if at, _, is := g.policers.applied(msg); is {
		g.policers.settleOp(at, ok)
	}
	switch m := msg.(type) {
	case *nat44_ed.Nat44InterfaceAddDelFeature:
		g.roles.settleOp(uint32(m.SwIfIndex), ok)
	case *nat44_ed.Nat44EdAddDelOutputInterface:
		g.outputs.settleOp(uint32(m.SwIfIndex), ok)
	case *nat44_ed.Nat44EdPluginEnableDisable:
		if ok { // in both cases NAT starts empty
			g.empty()
		}
	case *nat44_ed.Nat44LbStaticMappingDump, *nat44_ed.Nat44StaticMappingDump, *nat44_ed.Nat44IdentityMappingDump:
		if ok {
			g.dumpedMappings(msg, reply.Details)
		}
	case *nat44_ed.Nat44InterfaceDump, *nat44_ed.Nat44EdOutputInterfaceGet:
		if ok {
			g.dumpedInterfaces(msg, reply.Details)
		}
	case *ip.IPRouteAddDel, *ip.IPRouteAddDelV2:
		k, _, _ := routeOp(msg)
		g.routes.answered(k, ok)
	case *ip.IPRouteV2Dump:
		if ok {
			g.routes.dumped(m, reply.Details)
		}
	case *abf.AbfPolicyAddDel, *abf.AbfItfAttachAddDel, *abf.AbfPolicyDump, *abf.AbfItfAttachDump:
		g.forwarding.answered(msg, reply)
	case *ip.AddDelIPPuntRedirectV2:
		g.redirects.on.settleOp(redirectOf(m.Punt), ok)
	case *ip.IPPuntRedirectV2Dump:
		if ok {
			g.redirects.dumped(m, reply.Details)
		}
	case *vpe.ShowVersion:
		if r, answered := reply.Msg.(*vpe.ShowVersionReply); ok && answered {
			g.byteIPv6 = releasedBefore(r.Version, 25, 6)
		}
	case *nat44_ed.NatWorkerDump:
		if ok {
			g.workers = len(reply.Details)
		}
	default:
		if key, _, known := mappingOp(msg); known {
			g.settleMapping(key, msg, reply.Err)
		}
	}
}

// Event updates the shadow from an unsolicited message: NAT, cnat and the arcs forget a deleted interface (nat44_ed_sw_interface_add_del).
func (g *Guard) Event(msg api.Message) {
	m, ok := msg.(*interfaces.SwInterfaceEvent)
	if !ok || !m.Deleted {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roles.setState(uint32(m.SwIfIndex), 0)
	g.outputs.setState(uint32(m.SwIfIndex), 0)
	g.cnat.gone(m)
	for _, output := range []bool{false, true} {
		g.policers.setState(policerPlace{uint32(m.SwIfIndex), output}, "")
	}
}

// empty records that NAT has no state.
func (g *Guard) empty() {
	g.mappings.replace(func(mapping) bool { return true }, nil)
	g.roles.replace(func(flags) bool { return true }, nil)
	g.outputs.replace(func(flags) bool { return true }, nil)
	g.allLB = true
}

func otherRules() []Rule {
	return []Rule{
		{
			Name: "nat-disable", Messages: []string{"nat44_ed_plugin_enable_disable"},
			Source: "nat44_ed.c nat44_plugin_disable, VPP 24.06",
			Harm:   "deletes every mapping, session, role and pool, foreign ones too, and leaks FIB locks",
			judge: func(g *Guard, msg api.Message) string {
				return when(!msg.(*nat44_ed.Nat44EdPluginEnableDisable).Enable && !g.AllowDisable, "would disable nat44-ed")
			},
		},
		stateless("nat-vrf-dump-v1", "nat44_ed_api.c send_nat44_ed_vrf_tables_details, VPP 24.06",
			"details hold numbers in host byte order: what is read is wrong",
			func(*nat44_ed.Nat44EdVrfTablesDump) string { return "use nat44_ed_vrf_tables_v2_dump" }),
		{
			Name:     "cli-nat",
			Messages: []string{"cli_inband"},
			Source:   "nat44_ed_cli.c set_session_limit / nat44 plugin disable, VPP 24.06",
			Harm: "'set nat44 session limit' makes a new flow hash: static mappings are still dumped and match nothing; " +
				"'nat44 plugin disable' deletes everything",
			judge: func(g *Guard, msg api.Message) string { return judgeCLI(g, msg.(*vlib.CliInband).Cmd) },
		},
		stateless("interface-tag", "interface.api sw_interface_tag_add_del string[64], VPP 24.06",
			"VPP truncates the tag, which names the interface's owner, without an error",
			func(m *interfaces.SwInterfaceTagAddDel) string { return longTag(m.Tag) }),
	}
}
