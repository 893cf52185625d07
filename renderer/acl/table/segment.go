package table

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Scope limits the packets that a segment is for.
type Scope struct {
	Egress  bool
	Sources []netip.Addr // nil: all
}

// Segment is a run of clauses with one action, so that their order has no effect. It becomes one table, or several of which each
// has the peers of some buckets.
type Segment struct {
	role    string // its origin
	name    string // of its tables
	Scope   Scope
	Clauses []match.Clause
	users   int  // number of programs and lists that it is part of
	Host    bool // of a host endpoint
	Answers bool // its sources are those that egress allows: see step

	parts   []part         // written, in order
	written []match.Clause // the clauses of parts
	Tables  []*Table       // in order, without empty ones
	count   int            // number of tables it is split into, with empty ones
	Coarse  bool           // it is too big, or one of its clauses is: it permits less, or denies more, than its clauses
	fresh   bool           // parts belong to clauses

	AsksPorts bool          // a clause names ports of SCTP
	sctp      []Association // its rules about SCTP; nil: not computed
}

// rewrite invalidates the compiled parts for other reasons than changed clauses.
func (s *Segment) rewrite() { s.fresh, s.parts, s.written = false, nil, nil }

// part is one expanded clause: atoms, or atoms to be completed with each member of a set as peer.
type part struct {
	set   string          // "": flat
	atoms [2][]match.Atom // incomplete atoms, by family
	flat  []match.Atom
	of    []uint8 // bucket of each of flat; nil: not needed yet
	sets  bool    // atoms or flat depend on sets
	broad bool    // the clause is too big: flat has its replacement
	noted bool    // its expansion gave notes
}

// compiler compiles segments.
type compiler struct {
	match.Expander
	parts *[]part // reused memory for the parts of a segment
	most  int     // most rules of a segment
}

// Table is the content of one ACL before a law applies.
type Table struct {
	Name   string
	Egress bool // the pods whose interfaces have it, or the node, are the source
	Rules  []match.Atom
	Causes []*dataplane.Cause // one for each rule
	wire   []wire             // the rules in VPP's form
	join6  bool               // VPP compares IPv6 prefixes bit by bit, so that neighbours may be joined
}

// MaxRules bounds a segment, and an ACL of several joined tables. Each of its rules becomes up to four in VPP (see law), of 48 bytes on
// the wire: so an ACL is one message of less than 16 MiB.
const MaxRules = 5 << 14

// shorten replaces a segment that is too big by one that lets no additional packet pass: an empty one, or one that denies everything.
func (s *Segment) shorten(x *compiler) int {
	size := 0
	for i := range s.parts {
		x.Note(&s.Clauses[i], "makes too many rules: they are left out, and what they allow is denied")
		s.parts[i] = part{sets: true}
		for _, f := range match.Families {
			if s.Clauses[i].Verb == match.Deny && i == 0 {
				s.parts[i].flat = match.Instead(s.parts[i].flat, &s.Clauses[i], s.from(f), []netip.Prefix{f.All()})
			}
		}
		size += len(s.parts[i].flat)
	}
	return size
}

// tableName returns the name of table i of count: at most 30 bytes.
func (s *Segment) tableName(count, i int) string {
	if count == 1 {
		return s.name
	}
	return s.name + "-" + strconv.Itoa(count) + "." + strconv.Itoa(i)
}

// compileTables expands the segment again: completely, or only the buckets of dirty if the clauses are unchanged. It reports whether
// the list of tables changed, or whether the segment became coarse, or exact again. It appends the tables with new content.
func (s *Segment) compileTables(x *compiler, dirty uint64, changed *[]*Table) (relisted bool) {
	dirty |= s.writeAll(x)
	size := 0
	for i := range s.parts {
		size += s.parts[i].rules(x.Sets, x.WholeBytes)
	}
	was := s.Coarse
	if s.Coarse = size > x.most || slices.ContainsFunc(s.parts, func(p part) bool { return p.broad }); size > x.most {
		size = s.shorten(x)
	}
	count := budget.Lists(size)
	if count != s.count {
		dirty, s.count = ^uint64(0), count
	}
	old := make(map[string]*Table, len(s.Tables))
	for _, t := range s.Tables {
		old[t.Name] = t
	}
	var tables []*Table
	for i := range count {
		name := s.tableName(count, i)
		t := old[name]
		if dirty&bucketsOf(count, i) != 0 {
			room := 0
			if t != nil {
				room = len(t.Rules) + 8
			}
			t = s.writeTable(x, name, i, room)
			*changed = append(*changed, t)
		}
		if t != nil && len(t.Rules) > 0 {
			tables = append(tables, t)
		}
	}
	relisted = was != s.Coarse || !slices.EqualFunc(tables, s.Tables, func(a, b *Table) bool { return a.Name == b.Name })
	s.Tables = tables
	return relisted
}

// bucketsOf returns the buckets of table i of count.
func bucketsOf(count, i int) (mask uint64) {
	for b := i; b < match.Buckets; b += count {
		mask |= 1 << b
	}
	return mask
}

// Same reports whether two tables are the same ACL, regardless of causes.
func (t *Table) Same(o *Table) bool { return slices.Equal(t.Rules, o.Rules) }

// Alike returns the number of equal rules at the beginning of two tables and, of the others, at the end.
func Alike(a, b []match.Atom) (start, end int) {
	return conflict.Alike(len(a), len(b), func(i, j int) bool { return a[i] == b[j] })
}

// Grow reserves memory for rules.
func (t *Table) Grow(n int) {
	t.Rules, t.Causes = slices.Grow(t.Rules, n), slices.Grow(t.Causes, n)
}

// Append appends rules of another table.
func (t *Table) Append(o *Table, from, to int) {
	t.Rules, t.Causes = append(t.Rules, o.Rules[from:to]...), append(t.Causes, o.Causes[from:to]...)
}

// eachSet calls f with the name of each set that the segment depends on.
func (s *Segment) eachSet(f func(id string)) {
	for i := range s.Clauses {
		for _, m := range s.Clauses[i].Matches {
			m.EachSet(f)
		}
	}
}

// writeAll updates the parts: it expands clauses that are new, that depend on sets other than by their members as peers, or that
// have notes. It returns the buckets with rules that may differ.
func (s *Segment) writeAll(x *compiler) (dirty uint64) {
	if s.fresh && !slices.ContainsFunc(s.parts, part.passing) {
		return 0
	}
	said, note := false, x.Note
	x.Note = func(c *match.Clause, format string, args ...any) {
		said = true
		note(c, format, args...)
	}
	var f index.Follower
	old, gone := s.parts, 0 // the first that may be obsolete
	parts := (*x.parts)[:0]
	for i := range s.Clauses {
		c := &s.Clauses[i]
		k, known := f.Find(len(s.written), func(k int) bool { return c.Likewise(&s.written[k]) })
		if known {
			dirty |= s.bucketsIn(old[gone:k])
			gone = k + 1
		}
		if known && !old[k].passing() {
			parts = append(parts, old[k])
			if *c.Cause != *s.written[k].Cause {
				dirty |= s.bucketsIn(old[k:gone])
			}
			continue
		}
		said = false
		p := s.expandClause(x, c)
		p.noted = said
		if parts = append(parts, p); known {
			dirty |= s.bucketsIn(old[k:gone])
		}
		dirty |= s.bucketsIn(parts[i:])
	}
	dirty |= s.bucketsIn(old[gone:])
	s.parts = append(old[:0], parts...)
	clear(old[min(len(parts), len(old)):])
	clear(parts)
	*x.parts = parts
	s.written, s.fresh, x.Note = s.Clauses, true, note
	return dirty
}

// passing reports whether a part may change although its clause does not.
func (p part) passing() bool { return p.sets || p.noted }

// bucketsIn returns the buckets with rules of some parts.
func (s *Segment) bucketsIn(parts []part) (mask uint64) {
	for i := range parts {
		p := &parts[i]
		if s.count < 2 || p.set != "" {
			return ^uint64(0)
		}
		s.distribute(p)
		for _, b := range p.of {
			mask |= 1 << b
		}
	}
	return mask
}

// distribute computes the buckets of flat atoms.
func (s *Segment) distribute(p *part) {
	if p.of == nil {
		for _, a := range p.flat {
			p.of = append(p.of, uint8(match.BucketOf(s.peer(a))))
		}
	}
}

// from returns the sources whose packets the segment is for.
func (s *Segment) from(f match.Family) []netip.Prefix {
	if s.Scope.Sources == nil {
		return []netip.Prefix{f.All()}
	}
	var out []netip.Prefix
	for _, a := range s.Scope.Sources {
		if match.FamilyOf(a) == f {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// expandClause expands a clause.
func (s *Segment) expandClause(x *compiler, c *match.Clause) part {
	var p part
	lone, without := s.lone(c)
	if lone != "" && x.Sets[lone].Known() {
		p.set, c = lone, without
	}
	for _, m := range c.Matches {
		m.EachSet(func(string) { p.sets = true })
	}
	x.Coarse = false
	for _, f := range match.Families {
		out := x.Expand(nil, c, f, s.from(f), []netip.Prefix{f.All()})
		if p.set != "" {
			p.atoms[f] = out
		} else {
			p.flat = append(p.flat, out...)
		}
	}
	p.broad = x.Coarse
	return p
}

func (s *Segment) peer(a match.Atom) netip.Prefix {
	if s.Scope.Egress {
		return a.Dst
	}
	return a.Src
}

// lone returns the only set that a clause requires of the peer's address, and the clause without it. It returns "" if the clause
// also has other conditions on the peer's address.
func (s *Segment) lone(c *match.Clause) (id string, without *match.Clause) {
	if !s.Scope.Egress && s.Scope.Sources != nil {
		return "", nil
	}
	w := *c
	w.Matches = slices.Clone(c.Matches)
	for i, m := range c.Matches {
		p := m.Peer(s.Scope.Egress)
		if p.Nets != nil || p.NotNets != nil || p.NotSets != nil || p.Named != nil || p.NotNamed != nil || p.IPPorts != nil {
			return "", nil
		}
		if len(p.Sets) == 0 {
			continue
		}
		if len(p.Sets) > 1 || id != "" && id != p.Sets[0] {
			return "", nil
		}
		id = p.Sets[0]
		open := *m
		open.NamesSources = false // the members replace the condition
		open.Peer(s.Scope.Egress).Sets = nil
		w.Matches[i] = &open
	}
	return id, &w
}

// rules returns the number of rules of the part.
func (p *part) rules(sets match.Sets, bytes bool) int {
	if p.set == "" {
		return len(p.flat)
	}
	s := sets[p.set]
	size6 := s.Size(match.V6)
	if bytes {
		size6 = s.WholeBytes()
	}
	return len(p.atoms[match.V4])*s.Size(match.V4) + len(p.atoms[match.V6])*size6
}

// writeTable writes the rules of table i, of the estimated number.
func (s *Segment) writeTable(x *compiler, name string, i, about int) *Table {
	t := &Table{Name: name, Egress: s.Scope.Egress, join6: !x.WholeBytes}
	t.Grow(about)
	for j := range s.parts {
		before := len(t.Rules)
		t.Rules = s.appendShare(t.Rules, x, &s.parts[j], i)
		if s.parts[j].set != "" {
			t.Rules = x.Widen(t.Rules, before)
		}
		for range len(t.Rules) - before {
			t.Causes = append(t.Causes, s.Clauses[j].Cause)
		}
	}
	return t
}

// appendShare appends the share of a part in table i.
func (s *Segment) appendShare(out []match.Atom, x *compiler, p *part, i int) []match.Atom {
	switch {
	case p.set != "":
		for b := i; b < match.Buckets; b += s.count {
			for _, f := range match.Families {
				out = s.appendMembers(out, p.atoms[f], x.WithoutPeers(p.atoms[f], x.Sets[p.set].Bucket(f, b)))
			}
		}
		return out
	case s.count == 1:
		return append(out, p.flat...)
	}
	s.distribute(p)
	for j, b := range p.of {
		if int(b)%s.count == i {
			out = append(out, p.flat[j])
		}
	}
	return out
}

// appendMembers completes atoms with each of the members.
func (s *Segment) appendMembers(out, atoms []match.Atom, members []netip.Prefix) []match.Atom {
	for _, member := range members {
		for _, a := range atoms {
			if s.Scope.Egress {
				a.Dst = member
			} else {
				a.Src = member
			}
			out = append(out, a)
		}
	}
	return out
}
