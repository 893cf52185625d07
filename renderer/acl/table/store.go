package table

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Store has the tables, those of segments and those without a segment, and which of them changed.
type Store struct {
	fixed    map[string]*Table
	segments map[string]*Table
	changed  map[string]struct{}
}

// NewStore returns a store without tables.
func NewStore() *Store {
	return &Store{fixed: map[string]*Table{}, segments: map[string]*Table{}, changed: map[string]struct{}{}}
}

// Fix stores a table without a segment. A table with the same rules is no change, and keeps its causes.
func (s *Store) Fix(t *Table) {
	if old := s.fixed[t.Name]; old == nil || !old.Same(t) {
		s.fixed[t.Name] = t
		s.changed[t.Name] = struct{}{}
	}
}

// Unfix removes a table without a segment.
func (s *Store) Unfix(name string) {
	if s.fixed[name] != nil {
		delete(s.fixed, name)
		s.changed[name] = struct{}{}
	}
}

// Forget removes a table without a segment that no list has.
func (s *Store) Forget(name string) { delete(s.fixed, name) }

// Fixed returns a table without a segment; nil: none.
func (s *Store) Fixed(name string) *Table { return s.fixed[name] }

// Full reports whether a table without a segment exists, and has a rule.
func (s *Store) Full(name string) bool {
	t := s.fixed[name]
	return t != nil && len(t.Rules) > 0
}

// Lookup returns a table, whether lists have it or not; nil: none.
func (s *Store) Lookup(name string) *Table {
	if t := s.fixed[name]; t != nil {
		return t
	}
	return s.segments[name]
}

// CountSegments returns the number of tables of segments, and of their rules.
func (s *Store) CountSegments() (tables, rules int) {
	for _, t := range s.segments {
		tables, rules = tables+1, rules+len(t.Rules)
	}
	return tables, rules
}

// Touch marks a table as changed.
func (s *Store) Touch(name string) { s.changed[name] = struct{}{} }

// Changed has the names of the tables that changed since the last call of Settled.
func (s *Store) Changed() map[string]struct{} { return s.changed }

// Settled forgets which tables changed.
func (s *Store) Settled() { clear(s.changed) }

// Add appends a rule and its cause.
func (t *Table) Add(a match.Atom, c *dataplane.Cause) {
	t.Rules = append(t.Rules, a)
	t.Causes = append(t.Causes, c)
}

// ICMPAtom permits a type of a family's ICMP, and makes no session.
func ICMPAtom(f match.Family, typ uint16) match.Atom {
	return match.Atom{Verb: match.Admit, Src: f.All(), Dst: f.All(), Proto: f.ICMP(), SrcPorts: match.Span{Lo: typ, Hi: typ}, DstPorts: match.Span{Lo: 0, Hi: 255}}
}

// AddWide appends a rule if its ends are of one family (invalid means any), with whole bytes if VPP needs that.
func (t *Table) AddWide(a match.Atom, c *dataplane.Cause, wholeBytes bool) {
	f := match.FamilyOf(a.Dst.Addr())
	if !a.Dst.IsValid() {
		f = match.FamilyOf(a.Src.Addr())
	}
	for _, p := range []*netip.Prefix{&a.Src, &a.Dst} {
		if !p.IsValid() {
			*p = f.All()
		}
	}
	if match.FamilyOf(a.Src.Addr()) != match.FamilyOf(a.Dst.Addr()) {
		return
	}
	x := match.Expander{WholeBytes: wholeBytes}
	for _, a := range x.Widen([]match.Atom{a}, 0) {
		t.Add(a, c)
	}
}
