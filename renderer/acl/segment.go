package acl

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// scope limits the packets that a segment is for.
type scope struct {
	egress bool
	srcs   []netip.Addr // nil: all
}

// segment is a run of clauses with one action, so that their order has no effect. It becomes one table, or several of which each
// has the peers of some buckets.
type segment struct {
	role    string // its origin
	name    string // of its tables
	scope   scope
	clauses []match.Clause
	users   int  // number of programs and lists that it is part of
	host    bool // of a host endpoint
	answers bool // its sources are those that egress allows: see step

	parts   []part         // written, in order
	written []match.Clause // the clauses of parts
	tables  []*table       // in order, without empty ones
	count   int            // number of tables it is split into, with empty ones
	fresh   bool           // parts belong to clauses

	asks     bool          // a clause names ports of SCTP
	sctp     []association // its rules about SCTP
	sctpDone bool          // sctp is computed
}

// rewrite invalidates the compiled parts for other reasons than changed clauses.
func (s *segment) rewrite() { s.fresh, s.parts, s.written = false, nil, nil }

// part is one expanded clause: atoms, or atoms to be completed with each member of a set as peer.
type part struct {
	set   string          // "": flat
	atoms [2][]match.Atom // incomplete atoms, by family
	flat  []match.Atom
	of    []uint8 // bucket of each of flat; nil: not needed yet
	sets  bool    // atoms or flat depend on sets
	noted bool    // its expansion gave notes
}

// compiler compiles segments.
type compiler struct {
	match.Expander
	parts *[]part // reused memory for the parts of a segment
	most  int     // most rules of a segment
}

// table is the content of one ACL before a law applies.
type table struct {
	name   string
	egress bool // the pods whose interfaces have it, or the node, are the source
	rules  []match.Atom
	causes []*dataplane.Cause // one for each rule
	wire   []wire             // the rules in VPP's form
	join6  bool               // VPP compares IPv6 prefixes bit by bit, so that neighbours may be joined
}

// maxRules bounds a segment, and an ACL of several joined tables. Each of its rules becomes up to four in VPP (see law), of 48 bytes on
// the wire: so an ACL is one message of less than 16 MiB.
const maxRules = 5 << 14

// shorten replaces a segment that is too big by one that lets no additional packet pass: an empty one, or one that denies everything.
func (s *segment) shorten(x *compiler) int {
	size := 0
	for i := range s.parts {
		x.Note(&s.clauses[i], "makes too many rules: they are left out, and what they allow is denied")
		s.parts[i] = part{sets: true}
		for _, f := range match.Families {
			if s.clauses[i].Verb == match.Deny && i == 0 {
				s.parts[i].flat = match.Instead(s.parts[i].flat, &s.clauses[i], s.from(f), []netip.Prefix{f.All()})
			}
		}
		size += len(s.parts[i].flat)
	}
	return size
}

// nameOf returns the name of a segment's tables from its role, the same in every process.
func nameOf(role string) string {
	sum := sha256.Sum256([]byte(role))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
}

// tableName returns the name of table i of count: at most 30 bytes.
func (s *segment) tableName(count, i int) string {
	if count == 1 {
		return s.name
	}
	return s.name + "-" + strconv.Itoa(count) + "." + strconv.Itoa(i)
}

// compile expands the segment again: completely, or only the buckets of dirty if the clauses are unchanged. It reports whether
// the list of tables changed, and appends the tables with new content.
func (s *segment) compile(x *compiler, dirty uint64, changed *[]*table) (relisted bool) {
	dirty |= s.writeAll(x)
	size := 0
	for i := range s.parts {
		size += s.parts[i].rules(x.Sets, x.WholeBytes)
	}
	if size > x.most {
		size = s.shorten(x)
	}
	count := budget.Lists(size)
	if count != s.count {
		dirty, s.count = ^uint64(0), count
	}
	old := make(map[string]*table, len(s.tables))
	for _, t := range s.tables {
		old[t.name] = t
	}
	var tables []*table
	for i := range count {
		name := s.tableName(count, i)
		t := old[name]
		if dirty&bucketsOf(count, i) != 0 {
			room := 0
			if t != nil {
				room = len(t.rules) + 8
			}
			t = s.table(x, name, i, room)
			*changed = append(*changed, t)
		}
		if t != nil && len(t.rules) > 0 {
			tables = append(tables, t)
		}
	}
	relisted = !slices.EqualFunc(tables, s.tables, func(a, b *table) bool { return a.name == b.name })
	s.tables = tables
	return relisted
}

// bucketsOf returns the buckets of table i of count.
func bucketsOf(count, i int) (mask uint64) {
	for b := i; b < match.Buckets; b += count {
		mask |= 1 << b
	}
	return mask
}

// same reports whether two tables are the same ACL, regardless of causes.
func (t *table) same(o *table) bool { return slices.Equal(t.rules, o.rules) }

// alike returns the number of equal rules at the beginning of two tables and, of the others, at the end.
func alike(a, b []match.Atom) (start, end int) {
	return conflict.Alike(len(a), len(b), func(i, j int) bool { return a[i] == b[j] })
}

// grow reserves memory for rules.
func (t *table) grow(n int) {
	t.rules, t.causes = slices.Grow(t.rules, n), slices.Grow(t.causes, n)
}

// take appends rules of another table.
func (t *table) take(o *table, from, to int) {
	t.rules, t.causes = append(t.rules, o.rules[from:to]...), append(t.causes, o.causes[from:to]...)
}

// eachSet calls f with the name of each set that the segment depends on.
func (s *segment) eachSet(f func(id string)) {
	for i := range s.clauses {
		for _, m := range s.clauses[i].Matches {
			m.EachSet(f)
		}
	}
}

// writeAll updates the parts: it expands clauses that are new, that depend on sets other than by their members as peers, or that
// have notes. It returns the buckets with rules that may differ.
func (s *segment) writeAll(x *compiler) (dirty uint64) {
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
	for i := range s.clauses {
		c := &s.clauses[i]
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
		p := s.write(x, c)
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
	s.written, s.fresh, x.Note = s.clauses, true, note
	return dirty
}

// passing reports whether a part may change although its clause does not.
func (p part) passing() bool { return p.sets || p.noted }

// bucketsIn returns the buckets with rules of some parts.
func (s *segment) bucketsIn(parts []part) (mask uint64) {
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
func (s *segment) distribute(p *part) {
	if p.of == nil {
		for _, a := range p.flat {
			p.of = append(p.of, uint8(match.BucketOf(s.peer(a))))
		}
	}
}

// from returns the sources whose packets the segment is for.
func (s *segment) from(f match.Family) []netip.Prefix {
	if s.scope.srcs == nil {
		return []netip.Prefix{f.All()}
	}
	var out []netip.Prefix
	for _, a := range s.scope.srcs {
		if match.FamilyOf(a) == f {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// write expands a clause.
func (s *segment) write(x *compiler, c *match.Clause) part {
	var p part
	lone, without := s.lone(c)
	if lone != "" && x.Sets[lone].Known() {
		p.set, c = lone, without
	}
	for _, m := range c.Matches {
		m.EachSet(func(string) { p.sets = true })
	}
	for _, f := range match.Families {
		out := x.Expand(nil, c, f, s.from(f), []netip.Prefix{f.All()})
		if p.set != "" {
			p.atoms[f] = out
		} else {
			p.flat = append(p.flat, out...)
		}
	}
	return p
}

func (s *segment) peer(a match.Atom) netip.Prefix {
	if s.scope.egress {
		return a.Dst
	}
	return a.Src
}

// lone returns the only set that a clause requires of the peer's address, and the clause without it. It returns "" if the clause
// also has other conditions on the peer's address.
func (s *segment) lone(c *match.Clause) (id string, without *match.Clause) {
	if !s.scope.egress && s.scope.srcs != nil {
		return "", nil
	}
	w := *c
	w.Matches = slices.Clone(c.Matches)
	for i, m := range c.Matches {
		p := m.Peer(s.scope.egress)
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
		open.Peer(s.scope.egress).Sets = nil
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

// table writes the rules of table i, of the estimated number.
func (s *segment) table(x *compiler, name string, i, about int) *table {
	t := &table{name: name, egress: s.scope.egress, join6: !x.WholeBytes}
	t.grow(about)
	for j := range s.parts {
		before := len(t.rules)
		t.rules = s.appendShare(t.rules, x, &s.parts[j], i)
		if s.parts[j].set != "" {
			t.rules = x.Widen(t.rules, before)
		}
		for range len(t.rules) - before {
			t.causes = append(t.causes, s.clauses[j].Cause)
		}
	}
	return t
}

// appendShare appends the share of a part in table i.
func (s *segment) appendShare(out []match.Atom, x *compiler, p *part, i int) []match.Atom {
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
func (s *segment) appendMembers(out, atoms []match.Atom, members []netip.Prefix) []match.Atom {
	for _, member := range members {
		for _, a := range atoms {
			if s.scope.egress {
				a.Dst = member
			} else {
				a.Src = member
			}
			out = append(out, a)
		}
	}
	return out
}
