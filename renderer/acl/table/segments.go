package table

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Use is a segment in a list; nil: one verdict for every packet.
type Use struct {
	Seg   *Segment
	Verb  match.Verb
	Cause *dataplane.Cause
}

// Segments has the segments by role, and compiles them into the tables of a store.
type Segments struct {
	store *Store
	sets  match.Sets
	notes *note.Book
	// Most bounds the rules of a segment, and of a table that is made of several.
	Most  int
	all   map[string]*Segment
	ofSet index.Of[string, *Segment]
	dirty map[*Segment]uint64 // buckets
	asked bool                // some rule has named ports of SCTP
	parts []part              // reused memory
}

// NewSegments returns segments of a store, without any; most bounds the rules of one.
func NewSegments(store *Store, sets match.Sets, book *note.Book, most int) *Segments {
	return &Segments{store: store, sets: sets, notes: book, Most: most, all: map[string]*Segment{}, ofSet: index.Of[string, *Segment]{}, dirty: map[*Segment]uint64{}}
}

// Asked reports whether some rule has named ports of SCTP.
func (g *Segments) Asked() bool { return g.asked }

// Take returns the segment of a role with these clauses, and counts one more use of it.
func (g *Segments) Take(role string, sc Scope, clauses []match.Clause) *Segment {
	seg := g.all[role]
	if seg == nil {
		seg = &Segment{role: role, name: NameOf(role), Scope: sc}
		if strings.HasPrefix(role, InvitedPrefix) {
			seg.name = InvitedPrefix + seg.name
		}
		g.all[role] = seg
	}
	seg.users++
	if slices.EqualFunc(seg.Clauses, clauses, match.Clause.Equal) && slices.Equal(seg.Scope.Sources, sc.Sources) {
		return seg
	}
	g.unindex(seg)
	if seg.Scope.Egress != sc.Egress || !slices.Equal(seg.Scope.Sources, sc.Sources) {
		seg.rewrite()
	}
	seg.Clauses, seg.Scope, seg.fresh = clauses, sc, false
	seg.AsksPorts = slices.ContainsFunc(clauses, func(c match.Clause) bool { return c.AsksPorts() })
	g.asked = g.asked || seg.AsksPorts
	seg.eachSet(func(id string) { g.ofSet.Add(id, seg) })
	g.dirty[seg] |= 0 // the segment computes the difference
	if seg.written == nil {
		g.dirty[seg] = ^uint64(0)
	}
	return seg
}

func (g *Segments) unindex(seg *Segment) {
	seg.eachSet(func(id string) { g.ofSet.Remove(id, seg) })
}

// Drop removes one use of a segment, and the segment with its last use.
func (g *Segments) Drop(seg *Segment) {
	if seg.users--; seg.users > 0 {
		return
	}
	g.unindex(seg)
	delete(g.all, seg.role)
	delete(g.dirty, seg)
	for _, t := range seg.Tables {
		g.store.Touch(t.Name)
		delete(g.store.segments, t.Name)
	}
	seg.Tables = nil
	g.notes.Forget(seg.role)
}

// RewriteAll marks all segments.
func (g *Segments) RewriteAll() {
	for _, seg := range g.all {
		g.rewrite(seg)
	}
}

// SetReplaced marks the users of a set that is new, removed or sent again.
func (g *Segments) SetReplaced(id string) {
	for seg := range g.ofSet[id] {
		g.rewrite(seg)
	}
}

func (g *Segments) rewrite(seg *Segment) {
	seg.rewrite()
	g.dirty[seg] = ^uint64(0)
}

// SetChanged marks the users of a set of which some buckets changed.
func (g *Segments) SetChanged(id string, buckets uint64) {
	for seg := range g.ofSet[id] {
		g.dirty[seg] |= buckets
	}
}

// Compile compiles the segments whose clauses or sets changed. It calls done after each; relisted: the list of its tables changed. WholeBytes: VPP
// compares IPv6 prefixes by whole bytes. Begin may add notes to a segment, and returns the addresses that its rules must
// not admit.
func (g *Segments) Compile(wholeBytes bool, begin func(seg *Segment, note func(c *match.Clause, format string, args ...any)) []netip.Prefix, done func(seg *Segment, relisted bool)) {
	for _, seg := range slices.SortedFunc(maps.Keys(g.dirty), func(a, b *Segment) int { return cmp.Compare(a.name, b.name) }) {
		x := &compiler{match.Expander{Sets: g.sets, WholeBytes: wholeBytes, Note: g.notes.Of(seg.role)}, &g.parts, g.Most}
		if strings.HasPrefix(seg.role, InvitedPrefix) { // the pods' own lists have its rules, and their notes
			x.Note = func(*match.Clause, string, ...any) {}
		}
		x.Peers = begin(seg, x.Note)
		var changed []*Table
		old := seg.Tables
		relisted := seg.compileTables(x, g.dirty[seg], &changed)
		if g.asked {
			seg.sctp = nil
		}
		for _, t := range changed {
			g.store.Touch(t.Name)
			if len(t.Rules) > 0 {
				g.store.segments[t.Name] = t
			}
		}
		if relisted {
			for _, t := range old {
				g.store.Touch(t.Name)
				delete(g.store.segments, t.Name)
			}
			for _, t := range seg.Tables {
				g.store.segments[t.Name] = t
			}
		}
		done(seg, relisted)
	}
	clear(g.dirty)
}

// AskPeers reports whether steps match source addresses.
func AskPeers(uses []Use) bool {
	return slices.ContainsFunc(uses, func(u Use) bool {
		return u.Seg != nil && slices.ContainsFunc(u.Seg.Clauses, func(c match.Clause) bool {
			return slices.ContainsFunc(c.Matches, func(m *match.Match) bool { return !m.Src.AnyAddr() })
		})
	})
}
