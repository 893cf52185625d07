package budget

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// Age is when an object was created. The zero value is not known, as in a manifest.
type Age struct {
	Created time.Time
	UID     string
}

// Claim is what one object asks for.
type Claim struct {
	Ref  model.Ref // its Namespace is the one that pays; cluster-wide objects share the namespace ""
	Age  Age
	Size Size
	Why  string // why Size is what it is, to be added to a refusal; "": nothing to add
}

// older orders claims: the older first, by creationTimestamp, then UID, then name. One without a timestamp is the youngest.
func (c *Claim) older(o *Claim) int {
	known, other := !c.Age.Created.IsZero(), !o.Age.Created.IsZero()
	if known != other {
		if known {
			return -1
		}
		return 1
	}
	return cmp.Or(c.Age.Created.Compare(o.Age.Created), strings.Compare(c.Age.UID, o.Age.UID), c.Ref.Compare(o.Ref))
}

// Ledger holds what objects ask for, and which of them are refused. It is not safe for concurrent use.
type Ledger struct {
	limits  Limits
	entries map[model.Ref]*entry
	shares  map[string]*share
	demand  Size                // of all namespaces, each no more than its limit
	dirty   map[string]struct{} // namespaces with claims that changed
	full    bool                // the node's limits may refuse something
	changed map[model.Ref]struct{}
}

// entry is a claim and what became of it.
type entry struct {
	Claim
	refused string // reason; "": admitted
}

// share is what the objects of a namespace ask for together.
type share struct {
	claims  int
	sum     Size // without claims that are over an object's limit
	over    int  // how many claims are over an object's limit
	crowded bool // something was refused
}

// NewLedger returns an empty ledger with these limits.
func NewLedger(l Limits) *Ledger {
	return &Ledger{
		limits: l, entries: map[model.Ref]*entry{}, shares: map[string]*share{}, dirty: map[string]struct{}{}, changed: map[model.Ref]struct{}{},
	}
}

// Claim takes what an object asks for now, in place of what it asked for before. Whether it is refused is known after Settle.
func (l *Ledger) Claim(c Claim) {
	e := l.entries[c.Ref]
	switch {
	case e == nil:
		e = &entry{Claim: c}
		l.entries[c.Ref] = e
	case e.Claim == c:
		return
	default:
		l.book(e, -1)
		e.Claim = c
	}
	l.book(e, 1)
}

// Drop takes a claim away.
func (l *Ledger) Drop(ref model.Ref) {
	e := l.entries[ref]
	if e == nil {
		return
	}
	l.book(e, -1)
	delete(l.entries, ref)
	delete(l.changed, ref)
}

// book adds a claim to its namespace's share, or takes it away.
func (l *Ledger) book(e *entry, by int) {
	ns := e.Ref.Namespace
	s := l.shares[ns]
	if s == nil {
		s = &share{}
		l.shares[ns] = s
	}
	l.dirty[ns] = struct{}{}
	s.claims += by
	if !l.limits.fits(&e.Size, object) {
		s.over += by
		return
	}
	for d, n := range e.Size {
		before := l.limits.capped(d, s.sum[d])
		s.sum[d] += by * n
		l.demand[d] += l.limits.capped(d, s.sum[d]) - before
	}
}

// capped is what a namespace gets at most of what it asks for.
func (ls *Limits) capped(d, n int) int {
	if most := ls[d].Namespace; most > 0 {
		return min(n, most)
	}
	return n
}

// Refused is why an object is refused; "": it is not.
func (l *Ledger) Refused(ref model.Ref) string {
	if e := l.entries[ref]; e != nil {
		return e.refused
	}
	return ""
}

// Refusals are all objects that are refused, sorted, as notes.
func (l *Ledger) Refusals() []model.Note {
	var out []model.Note
	for ref, e := range l.entries {
		if e.refused != "" {
			out = append(out, model.Note{Ref: ref, Reason: e.refused, Refused: true})
		}
	}
	slices.SortFunc(out, func(a, b model.Note) int { return a.Ref.Compare(b.Ref) })
	return out
}

// Settle decides again where claims changed, and returns the objects that are refused now and were not before, or the other way
// round, sorted. The result depends on the claims alone, not on the order in which they came: older objects are admitted first, and one that
// does not fit is skipped. While all claims together are within the limits, the cost depends on the claims that changed alone.
func (l *Ledger) Settle() []model.Ref {
	if len(l.dirty) == 0 {
		return nil
	}
	if full := !l.limits.fits(&l.demand, node); full || l.full {
		l.full = full
		l.admit(slices.Collect(maps.Values(l.entries)), &Size{})
	} else {
		l.settleSome()
	}
	for ns := range l.dirty {
		if l.shares[ns].claims == 0 {
			delete(l.shares, ns)
		}
	}
	clear(l.dirty)
	out := slices.SortedFunc(maps.Keys(l.changed), model.Ref.Compare)
	clear(l.changed)
	return out
}

// settleSome decides about namespaces whose claims changed; the node has room for everything that they admit.
func (l *Ledger) settleSome() {
	lists := map[string][]*entry{}
	for ns := range l.dirty {
		if s := l.shares[ns]; s.crowded || s.over > 0 || !l.limits.fits(&s.sum, namespace) {
			lists[ns] = nil
		}
	}
	if len(lists) == 0 {
		return
	}
	for _, e := range l.entries {
		if list, is := lists[e.Ref.Namespace]; is {
			lists[e.Ref.Namespace] = append(list, e)
		}
	}
	for _, list := range lists {
		l.admit(list, nil)
	}
}

// admit decides about all entries of some namespaces, from the oldest on. Used is what the node has spent; nil: it has room.
func (l *Ledger) admit(list []*entry, used *Size) {
	slices.SortFunc(list, func(a, b *entry) int { return a.older(&b.Claim) })
	spent := map[string]*Size{}
	for _, e := range list {
		ns := spent[e.Ref.Namespace]
		if ns == nil {
			ns = &Size{}
			spent[e.Ref.Namespace] = ns
			l.shares[e.Ref.Namespace].crowded = false
		}
		why := l.limits.exceeds(&e.Size, &Size{}, object)
		if why == "" {
			why = l.limits.exceeds(&e.Size, ns, namespace)
		}
		if why == "" && used != nil {
			why = l.limits.exceeds(&e.Size, used, node)
		}
		if why != "" && e.Why != "" {
			why += "; " + e.Why
		}
		if (why == "") != (e.refused == "") {
			l.changed[e.Ref] = struct{}{}
		}
		if e.refused = why; why != "" {
			l.shares[e.Ref.Namespace].crowded = true
			continue
		}
		for d, n := range e.Size {
			ns[d] += n
			if used != nil {
				used[d] += n
			}
		}
	}
}

// scope says whose share it is.
type scope uint8

const (
	object scope = iota
	namespace
	node
)

func (l Limit) inScope(s scope) int { return [...]int{l.Object, l.Namespace, l.Node}[s] }

func (ls *Limits) fits(s *Size, of scope) bool { return ls.exceeds(s, &Size{}, of) == "" }

// exceeds says which limit a size exceeds on top of what is spent; "": none.
func (ls *Limits) exceeds(s, spent *Size, of scope) string {
	for d := range Dimensions {
		most := ls[d].inScope(of)
		if most == 0 || s[d] == 0 || spent[d]+s[d] <= most {
			continue
		}
		asks := fmt.Sprintf("it asks for %d %s, and ", s[d], d)
		switch of {
		case object:
			return fmt.Sprintf("%san object may have %d (--%s)", asks, most, d.Flag())
		case namespace:
			return fmt.Sprintf("%solder objects leave less of the %d that its namespace may have (--%s)", asks, most, d.Flag())
		}
		return fmt.Sprintf("%solder objects leave less of the %d that the node has (--%s)", asks, most, d.Flag())
	}
	return ""
}
