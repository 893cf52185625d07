package etcd

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
)

// table is what is stored for this node, key by key, and which values follow from it. Whatever order it is told things in, the
// values depend on what is stored alone, and on the last good value of keys whose value is refused.
type table struct {
	seed    maphash.Seed
	entries map[string]*entry   // by the key that is stored
	others  map[string][]*entry // by the value's key: entries for it that are spelled otherwise; few
	bad     map[string]*entry   // those refused
	round   uint32              // of reading everything
	changes changes
}

// entry is one key that is stored.
type entry struct {
	raw  string
	key  string        // of the value; "": there was no good one yet
	msg  proto.Message // the last good one
	how  event.Merge   // it is merged
	hash uint64        // of what is stored
	err  error         // why that is refused; nil: it is msg
	seen uint32        // round
}

// changes are what has become of keys since they were last taken.
type changes struct {
	values map[string]proto.Message // by the value's key; nil: not wanted any more
	merge  map[string]event.Merge   // of those that say how they are merged
	rows   map[string]row           // by the key that is stored
}

// row is what there is to say of a key that is stored.
type row struct {
	key  string // whose state is this row's; "": none's
	err  error  // what is wrong with what is stored; nil: nothing
	gone bool   // nothing is stored any more
}

// errShadowed is wrapped by the errors of keys whose value is fine, but not the one that counts.
var errShadowed = errors.New("the same value is stored under another spelling of its key, which decides")

func newTable() *table {
	t := &table{seed: maphash.MakeSeed(), entries: map[string]*entry{}, others: map[string][]*entry{}, bad: map[string]*entry{}}
	t.take()
	return t
}

// take returns the changes and forgets them.
func (t *table) take() changes {
	out := t.changes
	t.changes = changes{values: map[string]proto.Message{}, merge: map[string]event.Merge{}, rows: map[string]row{}}
	return out
}

// begin starts reading everything; end takes away what was not there.
func (t *table) begin() { t.round++ }

func (t *table) end() {
	for _, e := range t.entries {
		if e.seen != t.round {
			t.remove(e.raw)
		}
	}
}

// set takes what is stored under a key. It reports whether that differs from before.
func (t *table) set(p pair) bool {
	if p.deleted {
		return t.remove(p.key)
	}
	e, hash := t.entries[p.key], maphash.Bytes(t.seed, p.value)
	if p.tooLong {
		hash = 0
	}
	if e != nil && e.hash == hash {
		e.seen = t.round
		return false
	}
	if e == nil {
		e = &entry{raw: p.key}
		t.entries[p.key] = e
	}
	e.hash, e.seen = hash, t.round
	key, msg, how, err := "", proto.Message(nil), event.Merge{}, errTooLong
	if !p.tooLong {
		key, msg, how, err = decodeTerms(p.key, p.value)
	}
	if e.err = err; err != nil {
		t.bad[e.raw] = e
		t.row(e)
		return true
	}
	delete(t.bad, e.raw)
	if key == e.raw {
		key = e.raw // one string for both
	}
	before := e.key
	t.leave(e)
	e.key, e.msg, e.how = key, msg, how
	if key != e.raw {
		t.others[key] = append(t.others[key], e)
	}
	if before != "" && before != key {
		t.decide(before)
	}
	t.decide(key)
	return true
}

// remove takes note that nothing is stored under a key.
func (t *table) remove(raw string) bool {
	e := t.entries[raw]
	if e == nil {
		return false
	}
	delete(t.entries, raw)
	delete(t.bad, raw)
	t.leave(e)
	t.changes.rows[raw] = row{gone: true}
	if e.key != "" {
		t.decide(e.key)
	}
	return true
}

// leave takes an entry out of those for its value's key.
func (t *table) leave(e *entry) {
	if e.key == "" || e.key == e.raw {
		return
	}
	left := slices.DeleteFunc(t.others[e.key], func(o *entry) bool { return o == e })
	if t.others[e.key] = left; len(left) == 0 {
		delete(t.others, e.key)
	}
}

// winner is the entry that decides about a value: the one spelled as v3 does, or else the first by name; nil: there is none.
func (t *table) winner(key string) *entry {
	if e := t.entries[key]; e != nil && e.key == key {
		return e
	}
	var first *entry
	for _, e := range t.others[key] {
		if first == nil || e.raw < first.raw {
			first = e
		}
	}
	return first
}

// decide notes what is wanted for a key now, and what that means for all that is stored for it.
func (t *table) decide(key string) {
	w := t.winner(key)
	delete(t.changes.merge, key)
	if w == nil {
		t.changes.values[key] = nil
		return
	}
	if t.changes.values[key] = w.msg; !w.how.Zero() {
		t.changes.merge[key] = w.how
	}
	t.row(w)
	for _, e := range t.others[key] {
		t.row(e)
	}
}

// row notes what there is to say of an entry.
func (t *table) row(e *entry) {
	r := row{err: e.err}
	switch w := t.winner(e.key); {
	case e.key == "":
	case w == e:
		r.key = e.key
	default:
		r.err = errors.Join(r.err, fmt.Errorf("%w: %s", errShadowed, w.raw))
	}
	if r.err != nil && r.key != "" {
		r.err = fmt.Errorf("%w; the value before stays", r.err)
	}
	t.changes.rows[e.raw] = r
}

// maxSorted bounds how many refused keys are looked at to name some of them.
const maxSorted = 1000

// remark says how many keys' values are refused, and names some; "": none is.
func (t *table) remark() string {
	const named = 3
	if len(t.bad) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d keys refused", len(t.bad), len(t.entries))
	if len(t.bad) > maxSorted {
		return text
	}
	for i, raw := range slices.Sorted(maps.Keys(t.bad)) {
		if i == named {
			return text + "; …"
		}
		text += []string{": ", "; "}[min(i, 1)] + raw + ": " + t.bad[raw].err.Error()
	}
	return text
}
