package outer

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A packet behind an outer address that hides its clients does not show two facts any more.
//
// The client: a pod that reaches itself through a Service has the same address then, and the table of hairpins admits it. At
// ports that hidden clients reach, only policies admit that address.
//
// The pod whose egress it is: so the packet is evaluated where the pod dials, by the result for all backends together. Two tables
// per program list the addresses where that differs from the result for the dialled address.

// Evaluator evaluates the packets to outer addresses, and to addresses behind which nat44 hides pods.
type Evaluator struct {
	pods    *endpoint.Pods
	senders Senders
	exposed map[netip.Addr][]node.Exposure
	at      map[*endpoint.Iface][]node.Exposure // ports that hidden clients reach; sorted
	behind  map[netip.Addr]struct{}             // backends of outer addresses
}

// Senders has the programs that are evaluated where packets leave, and their sources.
type Senders interface {
	Programs() iter.Seq[*endpoint.Program]
	Sources(p *endpoint.Program) []netip.Addr
}

// New returns an evaluator without outer addresses.
func New(pods *endpoint.Pods, senders Senders) *Evaluator {
	return &Evaluator{
		pods: pods, senders: senders, exposed: map[netip.Addr][]node.Exposure{}, at: map[*endpoint.Iface][]node.Exposure{},
		behind: map[netip.Addr]struct{}{},
	}
}

// ForgetIface forgets an interface that exists no more.
func (g *Evaluator) ForgetIface(i *endpoint.Iface) {
	delete(g.at, i)
	g.pods.Store.Forget(hairpinTable(i.Name))
}

// Expose records the backends of outer addresses, and marks interfaces whose exposure changed.
func (g *Evaluator) Expose() {
	if g.pods.Outer {
		clear(g.exposed)
		clear(g.behind)
		for k := range g.pods.Node.Outer {
			o := &g.pods.Node.Outer[k]
			for _, b := range o.Backends {
				if g.behind[b.Addr()] = struct{}{}; o.Hides {
					g.exposed[b.Addr()] = append(g.exposed[b.Addr()], node.Exposure{Proto: o.Proto, Port: b.Port()})
				}
			}
		}
		g.fixKept()
		g.fixFronts()
	}
	for _, i := range g.pods.Ifaces {
		var now []node.Exposure
		for _, a := range i.Addrs {
			now = append(now, g.exposed[a]...)
		}
		slices.SortFunc(now, node.Exposure.Compare)
		if now = slices.Compact(now); !slices.Equal(now, g.at[i]) {
			g.at[i] = now
			g.pods.Relist(i)
		}
	}
}

// Hairpins returns the table for packets from a pod to itself through a Service.
func (g *Evaluator) Hairpins(i *endpoint.Iface) []lists.Place {
	if len(g.at[i]) == 0 {
		g.pods.Store.Unfix(hairpinTable(i.Name))
		return lists.Filled(g.pods.Store, table.HairpinAll)
	}
	g.pods.Store.Fix(g.pods.Node.HairpinTable(hairpinTable(i.Name), g.at[i]))
	return lists.Filled(g.pods.Store, hairpinTable(i.Name))
}

func hairpinTable(iface string) string { return table.HairpinAll + "-" + table.NameOf(iface) }

// fixKept writes the table of outer addresses that keep their clients: their packets are evaluated where they lead.
func (g *Evaluator) fixKept() {
	t := &table.Table{Name: table.KeptOuter, Egress: true}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "services, which are evaluated where they lead"}
	for k := range g.pods.Node.Outer {
		if o := &g.pods.Node.Outer[k]; !o.Hides && g.pods.Node.View(match.FamilyOf(o.Addr)) == dataplane.PreDNAT {
			t.Add(node.OuterAtom(o, match.Allow, match.FamilyOf(o.Addr).All()), cause)
		}
	}
	if had := len(lists.Filled(g.pods.Store, table.KeptOuter)) > 0; had != (len(t.Rules) > 0) {
		g.pods.RelistEgress()
	}
	g.pods.Store.Fix(t)
}

// Places returns the places of outer addresses in the list of a pod with a program for egress.
func (g *Evaluator) Places(p *endpoint.Program) []lists.Place {
	evaluated := lists.Flagged(append(lists.Filled(g.pods.Store, outerTable(table.Barred, p)), lists.Filled(g.pods.Store, outerTable(table.Led, p))...), true, false)
	return append(evaluated, lists.Flagged(lists.Filled(g.pods.Store, table.KeptOuter), false, true)...)
}

func outerTable(kind string, p *endpoint.Program) string { return kind + "-" + table.NameOf(p.Key) }

// Evaluate evaluates packets to outer addresses, for the programs of egress that changed, and for all that use a changed set.
func (g *Evaluator) Evaluate(programs map[*endpoint.Program]struct{}) {
	for p := range programs {
		if g.senders.Sources(p) == nil {
			g.pods.Store.Unfix(outerTable(table.Barred, p))
			g.pods.Store.Unfix(outerTable(table.Led, p))
			g.pods.RelistUsers(p)
		}
	}
	for p := range g.senders.Programs() {
		if _, changed := programs[p]; changed || g.pods.Outer || g.asksBehind(p) {
			g.fixOuter(p)
		}
	}
	g.pods.Outer = false
}

// asksBehind reports whether members changed in a set that a program may use for backends of outer addresses.
func (g *Evaluator) asksBehind(p *endpoint.Program) bool {
	if len(g.pods.Node.Outer) == 0 {
		return false
	}
	for id, members := range g.pods.Members {
		if !p.Steps.NamesSet(id) {
			continue
		}
		for _, m := range members {
			if _, is := g.behind[m.Addr()]; is || !m.IsSingleIP() || !p.Steps.IgnoresSources() {
				return true
			}
		}
		if g.dialled(members) {
			return true
		}
	}
	return false
}

// dialled reports whether one of the addresses is an outer one.
func (g *Evaluator) dialled(members []netip.Prefix) bool {
	return slices.ContainsFunc(members, func(m netip.Prefix) bool {
		return slices.ContainsFunc(g.pods.Node.Outer, func(o dataplane.Outer) bool { return m.Contains(o.Addr) })
	})
}

// fixOuter writes the tables of a program: addresses that all backends allow although the dialled address would be denied, and
// addresses that one backend denies although the dialled address would be allowed.
func (g *Evaluator) fixOuter(p *endpoint.Program) {
	no, yes := &table.Table{Name: outerTable(table.Barred, p)}, &table.Table{Name: outerTable(table.Led, p), Egress: true}
	froms := []netip.Addr{{}}
	if !p.Steps.IgnoresSources() {
		froms = g.senders.Sources(p)
	}
	for _, src := range froms {
		sender := denial.NewSender(g.pods.Sets, p.Steps.Each, src)
		for k := range g.pods.Node.Outer {
			o := &g.pods.Node.Outer[k]
			f := match.FamilyOf(o.Addr)
			if !o.Hides || g.pods.Node.View(f) != dataplane.PreDNAT || src.IsValid() && match.FamilyOf(src) != f {
				continue
			}
			from := f.All()
			if src.IsValid() {
				from = netip.PrefixFrom(src, src.BitLen())
			}
			by := backendsBar(sender, o)
			switch {
			case by != nil && !g.dialledBarred(sender, o, true):
				no.Add(node.OuterAtom(o, match.Deny, from), by)
			case by == nil && g.dialledBarred(sender, o, false):
				yes.Add(node.OuterAtom(o, match.Allow, from), &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "a service that leads only where policies allow"})
			}
		}
	}
	for _, t := range []*table.Table{no, yes} {
		had := len(lists.Filled(g.pods.Store, t.Name)) > 0
		switch {
		case len(t.Rules) > 0:
			g.pods.Store.Fix(t)
		case had:
			g.pods.Store.Unfix(t.Name)
		}
		if had != (len(t.Rules) > 0) {
			g.pods.RelistUsers(p)
		}
	}
}

// backendsBar returns why one of the backends is denied; nil: all are allowed.
func backendsBar(s *denial.Sender, o *dataplane.Outer) *dataplane.Cause {
	for _, b := range o.Backends {
		if c := s.Denied(b, o.Proto, false); c != nil {
			return c
		}
	}
	return nil
}

// dialledBarred reports whether the dialled address is denied without a table of outer addresses: for all source ports (wholly),
// or for some at least.
func (g *Evaluator) dialledBarred(s *denial.Sender, o *dataplane.Outer, wholly bool) bool {
	for _, f := range g.pods.Node.Frontends {
		if f.Contains(o.Addr) && (!f.IsSingleIP() || !slices.Contains(g.pods.Node.Addrs, o.Addr)) {
			return false
		}
	}
	return s.Denied(netip.AddrPortFrom(o.Addr, o.Port), o.Proto, wholly) != nil
}
