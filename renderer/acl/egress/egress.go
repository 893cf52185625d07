package egress

import (
	"encoding/binary"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// If the input hook sees Services before DNAT (PreDNAT), a pod's egress to a Service is evaluated where the packet leaves VPP:
//
//	source S ── input: own rules pass services, evaluate the rest ───▶ translation ──┬─▶ output of local pod B: residue of S's
//	                                                                                 │    program at B, then B's ingress
//	                                                                                 └─▶ output of uplink, overlay, host:
//	                                                                                      S's program for packets from S
//
// ACLs have no "continue". So if two programs must both allow a packet, the first must only deny: for a destination B only ports
// remain, and the ports that the program does not allow can be listed. Elsewhere the program is last.

// residue has the packets to one destination that a program denies.
type residue struct {
	lines []residueLine
	sig   string // equal for residues with equal lines
}

// residueLine is for one source or, if that is invalid, for all sources that have the program.
type residueLine struct {
	src   netip.Addr
	rects []denial.Rect
}

// outbound is a program that is evaluated where packets leave.
type outbound struct {
	p       *endpoint.Program
	sources []netip.Addr     // sorted: sources of the packets
	remote  []*table.Segment // the program for these sources, at the outputs of interfaces that are not a local pod's
	last    bool             // remote is last in the list, so its allowing rules need not name sources
	clauses int              // number of clauses
	blind   bool             // its result is the same for all sources
	sets    []string         // sets of destinations, one entry per use
}

// residueGroup is one table of residues: those of some programs, at all destinations where they are equal.
type residueGroup = group.Group[*endpoint.Program, *residue]

// Signature is equal for residues with equal lines.
func (res *residue) Signature() string { return res.sig }

// target is a local pod as destination.
type target struct {
	residues map[*endpoint.Program]*residue // packets that other pods may not send to this pod
	groups   []*residueGroup                // as tables
}

// Evaluator evaluates programs where packets leave.
type Evaluator struct {
	pods     *endpoint.Pods
	packs    *lists.Packs
	most     int // ACLs of an interface
	outbound map[*endpoint.Program]*outbound
	targets  map[*endpoint.Iface]*target
	regroup  map[*endpoint.Iface]struct{} // residues changed
	groups   *group.Groups[*endpoint.Program, *residue]
	vicinities
}

// New returns an evaluator without programs. Most is the most ACLs of an interface.
func New(pods *endpoint.Pods, packs *lists.Packs, most int) *Evaluator {
	e := &Evaluator{
		pods: pods, packs: packs, most: most, outbound: map[*endpoint.Program]*outbound{}, targets: map[*endpoint.Iface]*target{},
		regroup: map[*endpoint.Iface]struct{}{}, vicinities: vicinities{near: map[*endpoint.Program]*vicinity{}},
	}
	e.groups = group.New(table.GroupPrefix, pods.Store, e.residueTable)
	return e
}

// Empty reports whether no program is evaluated where packets leave.
func (e *Evaluator) Empty() bool { return len(e.outbound) == 0 }

// Programs yields the programs that are evaluated where packets leave, in any order.
func (e *Evaluator) Programs() iter.Seq[*endpoint.Program] { return maps.Keys(e.outbound) }

// Sources returns the sources for which a program is evaluated where packets leave; nil: for none.
func (e *Evaluator) Sources(p *endpoint.Program) []netip.Addr {
	if j := e.outbound[p]; j != nil {
		return j.sources
	}
	return nil
}

// Denies reports whether a program denies packets to a local pod.
func (e *Evaluator) Denies(i *endpoint.Iface, p *endpoint.Program) bool {
	t := e.targets[i]
	return t != nil && t.residues[p] != nil
}

// Update decides which of the changed programs are evaluated where packets leave. It returns the changed programs of egress.
func (e *Evaluator) Update() map[*endpoint.Program]struct{} {
	programs := map[*endpoint.Program]struct{}{}
	for p := range e.pods.Changed {
		if e.updateProgram(p); p.Spec.Egress {
			programs[p] = struct{}{}
		}
	}
	return programs
}

// Evaluate updates the tables for the programs that Update returned. Others: not only pods' packets end at the last program of a list.
func (e *Evaluator) Evaluate(programs map[*endpoint.Program]struct{}, others bool) {
	e.evaluateMembers(programs)
	e.chooseLast(others)
	for _, i := range e.pods.Ifaces {
		if _, all := e.pods.Moved[i]; all {
			for p := range e.outbound {
				e.residueAt(i, p)
			}
			for p := range e.target(i).residues {
				if e.outbound[p] == nil {
					e.residueAt(i, p)
				}
			}
		} else {
			for p := range programs {
				e.residueAt(i, p)
			}
		}
	}
	for i := range e.regroup {
		e.regroupAt(i)
	}
	for p := range e.pods.Changed {
		e.groups.Rewrite(p)
	}
	clear(e.near)
	clear(e.regroup)
}

// target returns a local pod as destination.
func (e *Evaluator) target(i *endpoint.Iface) *target {
	t := e.targets[i]
	if t == nil {
		t = &target{residues: map[*endpoint.Program]*residue{}}
		e.targets[i] = t
	}
	return t
}

// ForgetIface forgets an interface that exists no more.
func (e *Evaluator) ForgetIface(i *endpoint.Iface) {
	if t := e.targets[i]; t != nil {
		e.groups.Release(t.groups)
		delete(e.targets, i)
	}
}

// updateProgram decides whether and for which sources a program is evaluated where packets leave.
func (e *Evaluator) updateProgram(p *endpoint.Program) {
	j := e.outbound[p]
	var sources []netip.Addr
	if p.Spec.Egress && !p.Open && !p.Spec.Down && e.pods.Programs[p.Key] == p {
		for i := range p.Users {
			sources = e.pods.Node.Early(sources, i.Addrs)
		}
		slices.SortFunc(sources, netip.Addr.Compare)
	}
	if len(sources) == 0 && j == nil {
		return
	}
	if j == nil {
		j = &outbound{p: p}
		e.outbound[p] = j
	}
	j.sources = sources
	j.measure()
	if len(sources) == 0 {
		delete(e.outbound, p)
	}
	e.writeRemote(j)
}

// evaluateMembers evaluates again the pods that joined or left a set, for the programs that use the set.
func (e *Evaluator) evaluateMembers(done map[*endpoint.Program]struct{}) {
	for id, members := range e.pods.Members {
		for _, i := range e.pods.Ifaces {
			touched := slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool {
				return slices.ContainsFunc(members, func(m netip.Prefix) bool { return m.Contains(a) })
			})
			if !touched {
				continue
			}
			for p := range e.outbound {
				_, did := done[p]
				_, source := p.Users[i]
				switch {
				case did || !p.Steps.NamesSet(id):
				case source && !p.Steps.IgnoresSources():
					done[p] = struct{}{}
				default:
					e.residueAt(i, p)
				}
			}
		}
	}
}

// SetReplaced marks the programs that use a set that is new, removed or sent again.
func (e *Evaluator) SetReplaced(id string) {
	for p := range e.outbound {
		if p.Steps.NamesSet(id) {
			e.pods.Changed[p] = struct{}{}
		}
	}
}

// MembersChanged records the addresses that joined or left a set.
func (e *Evaluator) MembersChanged(m *felix.IPSetDeltaUpdate) {
	if len(e.outbound) == 0 {
		return
	}
	list := e.pods.Members[m.GetId()]
	for _, texts := range [][]string{m.GetAddedMembers(), m.GetRemovedMembers()} {
		for _, text := range texts {
			if p, ok := match.MemberPrefix(text); ok {
				list = append(list, p)
			}
		}
	}
	e.pods.Members[m.GetId()] = list
}

// residueAt computes which packets to a pod a program denies.
func (e *Evaluator) residueAt(i *endpoint.Iface, p *endpoint.Program) {
	var now *residue
	if j := e.outbound[p]; j != nil {
		now = e.residue(j, i)
	}
	at := e.target(i)
	old := at.residues[p]
	switch {
	case now == nil && old == nil:
		return
	case now == nil:
		delete(at.residues, p)
	default:
		at.residues[p] = now
	}
	if now == nil || old == nil || now.sig != old.sig {
		e.regroup[i] = struct{}{}
	}
}

// sign makes a residue's signature.
func (res *residue) sign() {
	b := make([]byte, 0, 64)
	for _, l := range res.lines {
		b = append(b, l.src.AsSlice()...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(l.rects)))
		for _, c := range l.rects {
			b = c.AppendTo(b)
		}
	}
	res.sig = string(b)
}

// regroupAt assigns the residues at a pod to tables.
func (e *Evaluator) regroupAt(i *endpoint.Iface) {
	at := e.target(i)
	at.groups = e.groups.Replace(at.groups, at.residues)
	e.pods.Relist(i)
}

// residueTable writes a group's table: the denials for each source.
func (e *Evaluator) residueTable(g *residueGroup) *table.Table {
	t := &table.Table{Name: g.Name}
	e.eachDenial(g, func(src netip.Addr, c denial.Rect, _ *endpoint.Program, _, _ int) {
		host := netip.PrefixFrom(src, src.BitLen())
		t.Add(c.Atom(host, match.FamilyOf(src).All()), c.Cause)
	})
	return t
}

// eachDenial calls f for each rule of the group's table, with its program and its index in the residue.
func (e *Evaluator) eachDenial(g *residueGroup, f func(src netip.Addr, c denial.Rect, p *endpoint.Program, line, n int)) {
	for _, m := range g.Members {
		p, res := m.Owner, m.Contribution
		j := e.outbound[p]
		if j == nil {
			continue
		}
		for line, l := range res.lines {
			sources := []netip.Addr{l.src}
			if !l.src.IsValid() {
				sources = j.sources
			}
			for _, src := range sources {
				for n, c := range l.rects {
					f(src, c, p, line, n)
				}
			}
		}
	}
}

// Places returns the places of residues in the output list of a local pod.
func (e *Evaluator) Places(i *endpoint.Iface) (out []lists.Place) {
	for _, g := range e.target(i).groups {
		out = append(out, lists.Place{Table: g.Name, Denies: true, Egress: true})
	}
	return out
}

// Cause completes the cause of a rule in a table of residues at a local pod: equal rules may have other causes at other pods. It returns the
// source that the rule is for; false: no such rule exists.
func (e *Evaluator) Cause(i *endpoint.Iface, name string, rule int, c *dataplane.Cause) (src netip.Addr, ok bool) {
	g := e.groups.Named(name)
	if g == nil {
		return src, false
	}
	n := 0
	e.eachDenial(g, func(s netip.Addr, _ denial.Rect, p *endpoint.Program, line, k int) {
		if res := e.target(i).residues[p]; n == rule && res != nil && line < len(res.lines) && k < len(res.lines[line].rects) {
			src, ok = s, true
			*c = *res.lines[line].rects[k].Cause
		}
		n++
	})
	return src, ok
}
