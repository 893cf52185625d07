package limit

import (
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Gate stands between the calculation graph, or the messages of an external one, and the driver. It closes policies that ask for
// more than their share: a closed policy still selects the same endpoints, and denies all their traffic. Policies that apply to no
// endpoint of this node ask for nothing.
//
//	SetPolicy ─ size of the object ──────────▶ ledger ─ closed? ─▶ graph: its rules are never unpacked
//	Flush ─ messages: rules, sizes of sets ──▶ ledger ─ closed? ─▶ graph, Flush again
type Gate struct {
	graph  *calc.Graph
	ledger *budget.Ledger
	byID   map[model.PolicyID]*gated
	byRef  map[model.Ref]*gated
	byName map[model.WireName]*gated
	sets   map[string]*budget.Members     // members of each set that the driver has
	users  map[string]map[*gated]struct{} // policies that refer to a set
	gone   map[*gated]struct{}            // removed since the last flush
	vpp    string                         // VPP's version; "": unknown
	other  bool                           // VPP's comparison of prefixes changed since the claims
}

// gated is a policy with the size that it asks for.
type gated struct {
	id     model.PolicyID
	ref    model.Ref
	name   model.WireName
	age    budget.Age
	size   [2]budget.Size // of the object alone, for a VPP that compares IPv6 prefixes by bits, and by whole bytes
	fresh  bool           // the object changed since the last claim
	active bool           // it applies to an endpoint of this node
	msg    *felix.Policy  // its message for the driver, with its rules; nil: unknown
	closed bool           // of a stream: the driver has its closed form
}

// New returns a gate without policies in front of a graph; nil: the messages are of an external graph.
func New(l budget.Limits, graph *calc.Graph) *Gate {
	return &Gate{
		graph: graph, ledger: budget.NewLedger(l.Of(2, 3)), byID: map[model.PolicyID]*gated{}, byRef: map[model.Ref]*gated{},
		byName: map[model.WireName]*gated{}, sets: map[string]*budget.Members{}, users: map[string]map[*gated]struct{}{}, gone: map[*gated]struct{}{},
	}
}

// SetPolicy stores the object of a policy; nil: the policy was removed.
func (g *Gate) SetPolicy(id model.PolicyID, o *model.Policy) {
	p := g.byID[id]
	switch {
	case p == nil && o == nil:
		return
	case p == nil:
		p = &gated{id: id, ref: id.Ref()}
		g.byID[id], g.byRef[p.ref] = p, p
	}
	if g.byName[p.name] == p {
		delete(g.byName, p.name)
	}
	if o == nil {
		g.gone[p] = struct{}{} // kept until flush: if the object returns by then with the same rules, the graph sends nothing for it
		return
	}
	delete(g.gone, p)
	p.name = model.WireName{Tier: o.Tier, Name: o.FelixName()}
	g.byName[p.name] = p
	p.age, p.fresh = budget.Age{Created: o.Created, UID: o.UID}, true
	p.size = [2]budget.Size{budget.OfPolicy(o, false), budget.OfPolicy(o, true)}
}

// leavePolicy records that a policy applies to no endpoint of this node.
func (g *Gate) leavePolicy(p *gated) {
	g.learn(p, nil)
	g.ledger.Drop(p.ref)
	g.graph.ClosePolicy(p.id, false)
	p.active = false
}

// Flush is the graph's Flush without the policies that ask for too much. The final messages come last: a policy may appear in full
// first and closed afterwards.
func (g *Gate) Flush() []*felix.ToDataplane {
	for p := range g.gone {
		g.leavePolicy(p)
		delete(g.byID, p.id)
		delete(g.byRef, p.ref)
	}
	clear(g.gone)
	g.reclaim()
	var fresh []*gated
	g.graph.Pending(func(id model.PolicyID, needed bool) {
		p := g.byID[id]
		switch {
		case p == nil:
		case !needed && p.active:
			g.leavePolicy(p)
		case needed && (p.fresh || !p.active):
			p.fresh, p.active = false, true
			g.claimObject(p)
			fresh = append(fresh, p)
		}
	})
	g.settlePolicies()
	for _, p := range fresh {
		if g.ledger.Refused(p.ref) != "" {
			g.learn(p, nil) // the graph does not unpack the new rules; the old rules no longer count
		}
	}
	out := g.graph.Flush()
	for news := out; len(news)+len(fresh) > 0; {
		g.weigh(news, fresh)
		if fresh = nil; !g.settlePolicies() {
			break
		}
		news = g.graph.Flush()
		out = append(out, news...)
	}
	return out
}

// SetVPP receives the version of VPP. The size of a policy depends on how VPP compares prefixes.
func (g *Gate) SetVPP(version string) {
	g.other = g.other || MatchesBytes(version) != MatchesBytes(g.vpp)
	g.vpp = version
}

// reclaim repeats all claims if VPP's comparison of prefixes changed.
func (g *Gate) reclaim() {
	if !g.other {
		return
	}
	g.other = false
	for _, p := range g.byRef {
		switch {
		case p.msg != nil:
			g.claimMessage(p)
		case p.active:
			g.claimObject(p)
		}
	}
}

// claimObject claims the size of a policy's object alone.
func (g *Gate) claimObject(p *gated) { g.claim(p, p.size[0], p.size[1]) }

// claimMessage claims the size of a policy's message with the members of its sets.
func (g *Gate) claimMessage(p *gated) {
	bits := budget.OfMessage(p.msg, g.members, false)
	bytes := bits
	if MatchesBytes(g.vpp) {
		bytes = budget.OfMessage(p.msg, g.members, true)
	}
	g.claim(p, bits, bytes)
}

// claim claims one of two sizes: the one for a VPP that compares IPv6 prefixes bit by bit, or the one for whole bytes.
func (g *Gate) claim(p *gated, bits, bytes budget.Size) {
	c := budget.Claim{Ref: p.ref, Age: p.age, Size: bits}
	if MatchesBytes(g.vpp) && bytes != bits {
		c.Size, c.Why = bytes, whyBytes(g.vpp, bits[budget.Rules], bytes[budget.Rules])
	}
	g.ledger.Claim(c)
}

// settlePolicies closes and opens policies, and reports whether it changed any.
func (g *Gate) settlePolicies() bool {
	changed := g.ledger.Settle()
	for _, ref := range changed {
		g.graph.ClosePolicy(g.byRef[ref].id, g.ledger.Refused(ref) != "")
	}
	return len(changed) > 0
}

// weigh claims the sizes of policies whose messages or sets are among the messages, and of fresh policies: the graph sends no message for a
// changed object with the same rules.
func (g *Gate) weigh(messages []*felix.ToDataplane, fresh []*gated) {
	touched := map[*gated]struct{}{}
	for _, p := range fresh {
		touched[p] = struct{}{}
	}
	for _, m := range messages {
		switch m := m.GetPayload().(type) {
		case *felix.ToDataplane_IpsetUpdate:
			g.resize(touched, m.IpsetUpdate.GetId(), new(budget.Members).Add(m.IpsetUpdate.GetMembers(), 1))
		case *felix.ToDataplane_IpsetDeltaUpdate:
			d := m.IpsetDeltaUpdate
			set := g.sets[d.GetId()]
			if set == nil {
				set = new(budget.Members)
			}
			g.resize(touched, d.GetId(), set.Add(d.GetAddedMembers(), 1).Add(d.GetRemovedMembers(), -1))
		case *felix.ToDataplane_IpsetRemove:
			delete(g.sets, m.IpsetRemove.GetId())
		case *felix.ToDataplane_ActivePolicyUpdate:
			u := m.ActivePolicyUpdate
			if p := g.byName[model.WireName{Tier: u.GetId().GetTier(), Name: u.GetId().GetName()}]; p != nil && !IsClosed(u.GetPolicy()) {
				g.learn(p, u.GetPolicy())
				touched[p] = struct{}{}
			}
		}
	}
	for p := range touched {
		if p.msg != nil {
			g.claimMessage(p)
		}
	}
}

func (g *Gate) members(set string) *budget.Members { return g.sets[set] }

func (g *Gate) resize(touched map[*gated]struct{}, set string, n *budget.Members) {
	g.sets[set] = n
	for p := range g.users[set] {
		touched[p] = struct{}{}
	}
}

// learn stores a policy's message, for later changes of its sets; nil: the policy has none.
func (g *Gate) learn(p *gated, m *felix.Policy) {
	if p.msg != nil {
		budget.Sets(p.msg, func(set string) {
			delete(g.users[set], p)
			if len(g.users[set]) == 0 {
				delete(g.users, set)
			}
		})
	}
	if p.msg = m; m != nil {
		budget.Sets(m, func(set string) {
			if g.users[set] == nil {
				g.users[set] = map[*gated]struct{}{}
			}
			g.users[set][p] = struct{}{}
		})
	}
}

// IsClosed reports whether a message is a closed policy as the graph sends it.
func IsClosed(p *felix.Policy) bool {
	return len(p.GetInboundRules()) == 1 && p.GetInboundRules()[0].GetRuleId() == calc.ClosedRule
}

// Pass returns messages of an external calculation graph without the policies that ask for too much. Messages have no creation time,
// so the policy whose name sorts first counts as older.
func (g *Gate) Pass(messages []*felix.ToDataplane) []*felix.ToDataplane {
	var updated []*gated // one for each ActivePolicyUpdate, in order
	for _, m := range messages {
		switch m := m.GetPayload().(type) {
		case *felix.ToDataplane_ActivePolicyUpdate:
			updated = append(updated, g.streamed(model.WireName{Tier: m.ActivePolicyUpdate.GetId().GetTier(), Name: m.ActivePolicyUpdate.GetId().GetName()}))
		case *felix.ToDataplane_ActivePolicyRemove:
			name := model.WireName{Tier: m.ActivePolicyRemove.GetId().GetTier(), Name: m.ActivePolicyRemove.GetId().GetName()}
			if p := g.byName[name]; p != nil {
				g.learn(p, nil)
				g.ledger.Drop(p.ref)
				delete(g.byName, name)
				delete(g.byRef, p.ref)
			}
		}
	}
	g.reclaim()
	g.weigh(messages, nil)
	changed := g.ledger.Settle()
	out := messages[:0:0]
	for _, m := range messages {
		if u, is := m.GetPayload().(*felix.ToDataplane_ActivePolicyUpdate); is {
			p := updated[0]
			updated = updated[1:]
			if p.closed = g.ledger.Refused(p.ref) != ""; p.closed {
				m = closedMessage(p, u.ActivePolicyUpdate.GetPolicy())
			}
		}
		out = append(out, m)
	}
	for _, ref := range changed {
		p := g.byRef[ref]
		if refused := g.ledger.Refused(ref) != ""; p != nil && p.msg != nil && p.closed != refused {
			p.closed = refused
			m := updateMessage(p.name, p.msg)
			if refused {
				m = closedMessage(p, p.msg)
			}
			out = append(out, m)
		}
	}
	return out
}

// streamed returns the policy with a name on the wire.
func (g *Gate) streamed(name model.WireName) *gated {
	p := g.byName[name]
	if p == nil {
		id := model.PolicyIDOf(name.Tier, name.Name)
		p = &gated{id: id, ref: id.Ref(), name: name}
		g.byName[name], g.byRef[p.ref] = p, p
	}
	return p
}

func updateMessage(name model.WireName, p *felix.Policy) *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &felix.ActivePolicyUpdate{
		Id: &felix.PolicyID{Tier: name.Tier, Name: name.Name}, Policy: p,
	}}}
}

func closedMessage(p *gated, was *felix.Policy) *felix.ToDataplane {
	deny := []*felix.Rule{{Action: string(model.ActionDeny), RuleId: calc.ClosedRule}}
	return updateMessage(p.name, &felix.Policy{
		Namespace: was.GetNamespace(), InboundRules: deny, OutboundRules: deny, Untracked: was.GetUntracked(), PreDnat: was.GetPreDnat(),
		OriginalSelector: was.GetOriginalSelector(), PerfHints: was.GetPerfHints(),
	})
}

// Refused returns the reason why a policy is closed; "": it is open.
func (g *Gate) Refused(ref model.Ref) string {
	why := g.ledger.Refused(ref)
	if why == "" {
		return ""
	}
	return closedReason(why)
}

// Notes lists the closed policies.
func (g *Gate) Notes() []model.Note {
	out := g.ledger.Refusals()
	for i := range out {
		out[i].Reason = closedReason(out[i].Reason)
	}
	return out
}

// closedReason returns the remark for a refused policy.
func closedReason(why string) string { return why + ": all that it applies to is denied" }
