package acl

import (
	"cmp"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
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

// residueParts is the number of parts that programs are distributed over for the tables of their residues: a change of one program affects
// few others.
const residueParts = 16

// rect is a set of denied ports of TCP or UDP.
type rect struct {
	proto        uint8
	sport, dport match.Span
	cause        *dataplane.Cause
}

// residue has the packets to one destination that a program denies.
type residue struct {
	lines []residueLine
	sig   string // equal for residues with equal lines
}

// residueLine is for one source or, if that is invalid, for all sources that have the program.
type residueLine struct {
	src   netip.Addr
	rects []rect
}

// outbound is a program that is evaluated where packets leave.
type outbound struct {
	p       *program
	sources []netip.Addr // sorted: sources of the packets
	remote  []*segment   // the program for these sources, where packets leave for destinations other than local pods
	last    bool         // remote is last in the list, so its allowing rules need not name sources
	clauses int          // number of clauses
	blind   bool         // its result is the same for all sources
	sets    []string     // sets of destinations, one entry per use
}

// residueGroup is one table of residues: those of some programs, at all destinations where they are equal.
type residueGroup struct {
	name    string
	members []groupMember // sorted by program
	users   int           // interfaces
}

type groupMember struct {
	p   *program
	res *residue
}

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
		for g := range r.ofGroup[p] {
			r.fixTable(r.residueTable(g))
		}
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
			sources = r.early(sources, i)
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

// early appends the addresses of a pod in the families whose Services the input hook sees.
func (r *Renderer) early(out []netip.Addr, i *iface) []netip.Addr {
	for _, a := range i.addrs {
		if r.view(match.FamilyOf(a)) == dataplane.PreDNAT {
			out = append(out, a)
		}
	}
	return out
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

// denies returns the TCP and UDP ports from src (invalid: any source) to dst that a program's clauses deny, or those of them that
// may match packets to dst.
func (r *Renderer) denies(clauses iter.Seq[*match.Clause], src, dst netip.Addr) []rect {
	f := match.FamilyOf(dst)
	from, to := []netip.Prefix{f.All()}, []netip.Prefix{netip.PrefixFrom(dst, dst.BitLen())}
	if src.IsValid() {
		from[0] = netip.PrefixFrom(src, src.BitLen())
	}
	x := &match.Expander{Sets: r.sets, Note: func(*match.Clause, string, ...any) {}}
	left := []rect{{proto: match.TCP, sport: match.AllPorts, dport: match.AllPorts}, {proto: match.UDP, sport: match.AllPorts, dport: match.AllPorts}}
	var denied []rect
	var atoms []match.Atom
	for c := range clauses {
		if c.Misses(r.sets, to[0]) {
			continue
		}
		atoms = x.Expand(atoms[:0], c, f, from, to)
		for _, a := range atoms {
			left = cut(left, a, func(hit rect) {
				if hit.cause = c.Cause; c.Verb == match.Deny {
					denied = append(denied, hit)
				}
			})
		}
		if len(left) == 0 {
			break
		}
	}
	return denied
}

// cut removes the packets that an atom matches from the rects, and calls hit with each piece.
func cut(left []rect, a match.Atom, hit func(rect)) []rect {
	var out []rect
	for n, l := range left {
		s, ok := l.sport.And(a.SrcPorts)
		d, also := l.dport.And(a.DstPorts)
		if !ok || !also || a.Proto != 0 && a.Proto != l.proto {
			out = append(out, l)
			continue
		}
		hit(rect{proto: l.proto, sport: s, dport: d})
		for _, rest := range l.sport.Minus(a.SrcPorts) {
			out = append(out, rect{proto: l.proto, sport: rest, dport: left[n].dport})
		}
		for _, rest := range l.dport.Minus(a.DstPorts) {
			out = append(out, rect{proto: l.proto, sport: s, dport: rest})
		}
	}
	return out
}

// sign makes a residue's signature.
func (res *residue) sign() {
	b := make([]byte, 0, 64)
	for _, l := range res.lines {
		b = append(b, l.src.AsSlice()...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(l.rects)))
		for _, c := range l.rects {
			b = append(b, c.proto)
			for _, v := range [...]uint16{c.sport.Lo, c.sport.Hi, c.dport.Lo, c.dport.Hi} {
				b = binary.BigEndian.AppendUint16(b, v)
			}
		}
	}
	res.sig = string(b)
}

// regroup assigns the residues at a pod to tables.
func (r *Renderer) regroup(i *iface) {
	var parts [residueParts][]groupMember
	for p, res := range i.residues {
		parts[p.part] = append(parts[p.part], groupMember{p, res})
	}
	var now []*residueGroup
	for n, members := range parts {
		if len(members) == 0 {
			continue
		}
		slices.SortFunc(members, func(a, b groupMember) int { return cmp.Compare(a.p.key, b.p.key) })
		now = append(now, r.group(n, members))
	}
	old := i.groups
	i.groups = now
	for _, g := range now {
		g.users++
	}
	for _, g := range old {
		r.ungroup(g)
	}
	r.dirty.ifaces[i] = struct{}{}
}

// group returns the group of a part with these members.
func (r *Renderer) group(part int, members []groupMember) *residueGroup {
	role := "e" + strconv.Itoa(part)
	for _, m := range members {
		role += "\x00" + strconv.Itoa(len(m.p.key)) + m.p.key + strconv.Itoa(len(m.res.sig)) + m.res.sig
	}
	name := groupPrefix + nameOf(role)
	g := r.groups[name]
	if g == nil {
		g = &residueGroup{name: name, members: members}
		r.groups[name] = g
		for _, m := range members {
			r.ofGroup.Add(m.p, g)
		}
		r.fixTable(r.residueTable(g))
	}
	return g
}

func (r *Renderer) ungroup(g *residueGroup) {
	if g.users--; g.users > 0 {
		return
	}
	for _, m := range g.members {
		r.ofGroup.Remove(m.p, g)
	}
	delete(r.groups, g.name)
	delete(r.fixed, g.name)
	r.dirty.tables[g.name] = struct{}{}
}

// residueTable writes a group's table: the denials for each source.
func (r *Renderer) residueTable(g *residueGroup) *table {
	t := &table{name: g.name}
	g.each(r, func(src netip.Addr, c rect, _ *program, _, _ int) {
		host := netip.PrefixFrom(src, src.BitLen())
		t.add(match.Atom{Verb: match.Deny, Src: host, Dst: match.FamilyOf(src).All(), Proto: c.proto, SrcPorts: c.sport, DstPorts: c.dport}, c.cause)
	})
	return t
}

// each calls f for each rule of the group's table, with its program and its index in the residue.
func (g *residueGroup) each(r *Renderer, f func(src netip.Addr, c rect, p *program, line, n int)) {
	for _, m := range g.members {
		j := r.outbound[m.p]
		if j == nil {
			continue
		}
		for line, l := range m.res.lines {
			sources := []netip.Addr{l.src}
			if !l.src.IsValid() {
				sources = j.sources
			}
			for _, src := range sources {
				for n, c := range l.rects {
					f(src, c, m.p, line, n)
				}
			}
		}
	}
}
