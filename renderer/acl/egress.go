package acl

import (
	"cmp"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Where the input hook sees services (PreDNAT), a pod's egress to one is judged where the packet leaves VPP:
//
//	source S ── input: own rules pass services, all else is judged ──▶ translation ──┬─▶ output of local pod B: residue of S's
//	                                                                                 │    program at B, then B's ingress
//	                                                                                 └─▶ output of uplink, overlay, host:
//	                                                                                      S's program for packets from S
//
// ACLs have no "go on", so of two programs that must both allow, the first has to be one that only denies: for a destination B
// there remain only ports, and what the program does not allow of them can be listed. Elsewhere the program comes last.

// residueParts is in how many parts programs are put for the tables of their residues: a change of one touches few others.
const residueParts = 16

// rect is ports of TCP or UDP that are denied.
type rect struct {
	proto        uint8
	sport, dport span
	cause        *dataplane.Cause
}

// residue is what a program denies of what reaches one destination.
type residue struct {
	lines []residueLine
	sig   string // the same for residues with the same lines
}

// residueLine is for one source, or if that is invalid, all that have the program.
type residueLine struct {
	src   netip.Addr
	rects []rect
}

// judged is a program that is judged where packets leave.
type judged struct {
	p       *program
	sources []netip.Addr // sorted: whose packets
	remote  []*segment   // the program for these, where packets leave for anywhere but a local pod
	last    bool         // remote comes last, and so need not name sources where it allows
	clauses int          // how many it has
	blind   bool         // it judges all sources' addresses alike
	sets    []string     // of destinations, one for each time it is named
}

// residueGroup is one table of residues: those of some programs at all destinations where they are the same.
type residueGroup struct {
	name    string
	members []groupMember // sorted by program
	users   int           // interfaces
}

type groupMember struct {
	p   *program
	res *residue
}

// judge brings up to date what is judged where packets leave.
func (r *Renderer) judge() {
	programs := map[*program]struct{}{}
	for p := range r.dirty.judged {
		if r.judgeProgram(p); p.spec.egress {
			programs[p] = struct{}{}
		}
	}
	r.judgeOuter(programs)
	r.judgeMembers(programs)
	r.chooseLast()
	for _, i := range r.ifaces {
		if _, all := r.dirty.targets[i]; all {
			for p := range r.judged {
				r.residueAt(i, p)
			}
			for p := range i.residues {
				if r.judged[p] == nil {
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
	for p := range r.dirty.judged {
		for g := range r.ofGroup[p] {
			r.fixTable(r.residueTable(g))
		}
	}
	clear(r.near)
	clear(r.dirty.judged)
	clear(r.dirty.targets)
	clear(r.dirty.regroup)
	clear(r.dirty.members)
}

// judgeProgram finds out whether and for whom a program is judged where packets leave.
func (r *Renderer) judgeProgram(p *program) {
	j := r.judged[p]
	var sources []netip.Addr
	if p.spec.egress && !p.open && !p.spec.down && r.programs[p.key] == p {
		for i := range p.users {
			sources = r.early(sources, i)
		}
		slices.SortFunc(sources, netip.Addr.Compare)
	}
	if len(sources) == 0 && j == nil {
		return
	}
	if j == nil {
		j = &judged{p: p}
		r.judged[p] = j
	}
	j.sources = sources
	j.measure()
	if len(sources) == 0 {
		delete(r.judged, p)
	}
	r.writeRemote(j)
}

// early appends a pod's addresses of families whose services the input hook sees.
func (r *Renderer) early(out []netip.Addr, i *iface) []netip.Addr {
	for _, a := range i.addrs {
		if r.view(familyOf(a)) == dataplane.PreDNAT {
			out = append(out, a)
		}
	}
	return out
}

// judgeMembers judges again what concerns pods that joined or left a set, by the programs that ask for it.
func (r *Renderer) judgeMembers(done map[*program]struct{}) {
	for id, members := range r.dirty.members {
		for _, i := range r.ifaces {
			touched := slices.ContainsFunc(i.addrs, func(a netip.Addr) bool {
				return slices.ContainsFunc(members, func(m netip.Prefix) bool { return m.Contains(a) })
			})
			if !touched {
				continue
			}
			for p := range r.judged {
				_, did := done[p]
				_, source := p.users[i]
				switch {
				case did || !p.asks(id):
				case source && !p.looksAtNoSource():
					done[p] = struct{}{}
				default:
					r.residueAt(i, p)
				}
			}
		}
	}
}

// asks reports whether the program depends on a set.
func (p *program) asks(id string) bool {
	found := false
	for i := range p.steps {
		for _, c := range p.steps[i].clauses {
			for _, m := range c.matches {
				m.eachSet(func(s string) { found = found || s == id })
			}
		}
	}
	return found
}

// membersChanged remembers which addresses joined or left a set.
func (r *Renderer) membersChanged(m *felix.IPSetDeltaUpdate) {
	list := r.dirty.members[m.GetId()]
	for _, texts := range [][]string{m.GetAddedMembers(), m.GetRemovedMembers()} {
		for _, text := range texts {
			if e, err := parseEndpoint(text); err == nil {
				list = append(list, netip.PrefixFrom(e.addr, e.addr.BitLen()))
			} else if p, err := parseNet(text); err == nil {
				list = append(list, p)
			}
		}
	}
	r.dirty.members[m.GetId()] = list
}

// residueAt works out what a program denies of what reaches a pod.
func (r *Renderer) residueAt(i *iface, p *program) {
	var now *residue
	if j := r.judged[p]; j != nil {
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

// denies is what a program's clauses, or those of them that may match packets to dst, deny of the TCP and UDP from src (invalid:
// anybody) to dst.
func (r *Renderer) denies(clauses iter.Seq[*clause], src, dst netip.Addr) []rect {
	f := familyOf(dst)
	from, to := []netip.Prefix{f.all()}, []netip.Prefix{netip.PrefixFrom(dst, dst.BitLen())}
	if src.IsValid() {
		from[0] = netip.PrefixFrom(src, src.BitLen())
	}
	x := &expander{sets: r.sets, note: func(*clause, string, ...any) {}}
	left := []rect{{proto: protoTCP, sport: allPorts, dport: allPorts}, {proto: protoUDP, sport: allPorts, dport: allPorts}}
	var denied []rect
	var atoms []atom
	for c := range clauses {
		if c.misses(r.sets, to[0]) {
			continue
		}
		atoms = x.expand(atoms[:0], c, f, from, to)
		for _, a := range atoms {
			left = cut(left, a, func(hit rect) {
				if hit.cause = c.cause; c.verb == deny {
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

// misses is a quick look: no packet to that address matches. False means nothing.
func (c *clause) misses(sets map[string]*ipset, to netip.Prefix) bool {
	for _, m := range c.matches {
		if m.dst.nets != nil && !few(m.dst.nets).covers(to) {
			return true
		}
		for _, id := range m.dst.sets {
			if s := sets[id]; known(s) && !s.nets[familyOf(to.Addr())].covers(to) {
				return true
			}
		}
	}
	return false
}

// cut takes what an atom matches out of the rects, and calls hit with each piece.
func cut(left []rect, a atom, hit func(rect)) []rect {
	var out []rect
	for n, l := range left {
		s, ok := l.sport.and(a.sport)
		d, also := l.dport.and(a.dport)
		if !ok || !also || a.proto != 0 && a.proto != l.proto {
			out = append(out, l)
			continue
		}
		hit(rect{proto: l.proto, sport: s, dport: d})
		for _, rest := range l.sport.minus(a.sport) {
			out = append(out, rect{proto: l.proto, sport: rest, dport: left[n].dport})
		}
		for _, rest := range l.dport.minus(a.dport) {
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
			for _, v := range [...]uint16{c.sport.lo, c.sport.hi, c.dport.lo, c.dport.hi} {
				b = binary.BigEndian.AppendUint16(b, v)
			}
		}
	}
	res.sig = string(b)
}

// regroup finds the tables for the residues at a pod.
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

// group is the group of a part with these members.
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
			add(r.ofGroup, m.p, g)
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
		remove(r.ofGroup, m.p, g)
	}
	delete(r.groups, g.name)
	delete(r.fixed, g.name)
	r.dirty.tables[g.name] = struct{}{}
}

// residueTable writes a group down: what each source is denied.
func (r *Renderer) residueTable(g *residueGroup) *table {
	t := &table{name: g.name}
	g.each(r, func(src netip.Addr, c rect, _ *program, _, _ int) {
		host := netip.PrefixFrom(src, src.BitLen())
		t.add(atom{verb: deny, src: host, dst: familyOf(src).all(), proto: c.proto, sport: c.sport, dport: c.dport}, c.cause)
	})
	return t
}

// each calls f for each rule of the group's table, with the program it is of, and where in the residue.
func (g *residueGroup) each(r *Renderer, f func(src netip.Addr, c rect, p *program, line, n int)) {
	for _, m := range g.members {
		j := r.judged[m.p]
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
