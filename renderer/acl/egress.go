package acl

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// If the input hook sees Services before DNAT (PreDNAT), a pod's egress to a Service is evaluated where the packet leaves VPP:
//
//	source S ── input: own rules pass services, all else is judged ──▶ translation ──┬─▶ output of local pod B: residue of S's
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
	p       *program
	sources []netip.Addr     // sorted: sources of the packets
	remote  []*table.Segment // the program for these sources, where packets leave for destinations other than local pods
	last    bool             // remote is last in the list, so its allowing rules need not name sources
	clauses int              // number of clauses
	blind   bool             // its result is the same for all sources
	sets    []string         // sets of destinations, one entry per use
}

// residueGroup is one table of residues: those of some programs, at all destinations where they are equal.
type residueGroup = group.Group[*program, *residue]

// Signature is equal for residues with equal lines.
func (res *residue) Signature() string { return res.sig }

// evaluateOutputs updates everything that is evaluated where packets leave.
func (r *Renderer) evaluateOutputs() {
	programs := map[*program]struct{}{}
	for p := range r.dirty.outbound {
		if r.evaluateProgram(p); p.spec.Egress {
			programs[p] = struct{}{}
		}
	}
	r.evaluateOuter(programs)
	r.evaluateMembers(programs)
	r.chooseLast()
	for _, i := range r.ifaces {
		if _, all := r.dirty.targets[i]; all {
			for p := range r.outbound {
				r.residueAt(i, p)
			}
			for p := range i.residues {
				if r.outbound[p] == nil {
					r.residueAt(i, p)
				}
			}
		} else {
			for p := range programs {
				r.residueAt(i, p)
			}
		}
	}
	for i := range r.dirty.regroup {
		r.regroup(i)
	}
	for p := range r.dirty.outbound {
		r.groups.Rewrite(p)
	}
	r.refuser.evaluate()
	clear(r.near)
	clear(r.dirty.outbound)
	clear(r.dirty.targets)
	clear(r.dirty.regroup)
	clear(r.dirty.members)
}

// evaluateProgram decides whether and for which sources a program is evaluated where packets leave.
func (r *Renderer) evaluateProgram(p *program) {
	j := r.outbound[p]
	var sources []netip.Addr
	if p.spec.Egress && !p.open && !p.spec.Down && r.programs[p.key] == p {
		for i := range p.users {
			sources = r.node.Early(sources, i.addrs)
		}
		slices.SortFunc(sources, netip.Addr.Compare)
	}
	if len(sources) == 0 && j == nil {
		return
	}
	if j == nil {
		j = &outbound{p: p}
		r.outbound[p] = j
	}
	j.sources = sources
	j.measure()
	if len(sources) == 0 {
		delete(r.outbound, p)
	}
	r.writeRemote(j)
}

// evaluateMembers evaluates again the pods that joined or left a set, for the programs that use the set.
func (r *Renderer) evaluateMembers(done map[*program]struct{}) {
	for id, members := range r.dirty.members {
		for _, i := range r.ifaces {
			touched := slices.ContainsFunc(i.addrs, func(a netip.Addr) bool {
				return slices.ContainsFunc(members, func(m netip.Prefix) bool { return m.Contains(a) })
			})
			if !touched {
				continue
			}
			for p := range r.outbound {
				_, did := done[p]
				_, source := p.users[i]
				switch {
				case did || !p.steps.NamesSet(id):
				case source && !p.steps.IgnoresSources():
					done[p] = struct{}{}
				default:
					r.residueAt(i, p)
				}
			}
		}
	}
}

// membersChanged records the addresses that joined or left a set.
func (r *Renderer) membersChanged(m *felix.IPSetDeltaUpdate) {
	list := r.dirty.members[m.GetId()]
	for _, texts := range [][]string{m.GetAddedMembers(), m.GetRemovedMembers()} {
		for _, text := range texts {
			if p, ok := match.MemberPrefix(text); ok {
				list = append(list, p)
			}
		}
	}
	r.dirty.members[m.GetId()] = list
}

// residueAt computes which packets to a pod a program denies.
func (r *Renderer) residueAt(i *iface, p *program) {
	var now *residue
	if j := r.outbound[p]; j != nil {
		now = r.residue(j, i)
	}
	old := i.residues[p]
	switch {
	case now == nil && old == nil:
		return
	case now == nil:
		delete(i.residues, p)
	default:
		if i.residues == nil {
			i.residues = map[*program]*residue{}
		}
		i.residues[p] = now
	}
	if now == nil || old == nil || now.sig != old.sig {
		r.dirty.regroup[i] = struct{}{}
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

// regroup assigns the residues at a pod to tables.
func (r *Renderer) regroup(i *iface) {
	i.groups = r.groups.Replace(i.groups, i.residues)
	r.dirty.ifaces[i] = struct{}{}
}

// residueTable writes a group's table: the denials for each source.
func (r *Renderer) residueTable(g *residueGroup) *table.Table {
	t := &table.Table{Name: g.Name}
	r.eachDenial(g, func(src netip.Addr, c denial.Rect, _ *program, _, _ int) {
		host := netip.PrefixFrom(src, src.BitLen())
		t.Add(c.Atom(host, match.FamilyOf(src).All()), c.Cause)
	})
	return t
}

// eachDenial calls f for each rule of the group's table, with its program and its index in the residue.
func (r *Renderer) eachDenial(g *residueGroup, f func(src netip.Addr, c denial.Rect, p *program, line, n int)) {
	for _, m := range g.Members {
		p, res := m.Owner, m.Contribution
		j := r.outbound[p]
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
