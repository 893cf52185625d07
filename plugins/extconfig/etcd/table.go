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

// table holds the stored keys of this node, and the values that follow from them. The values depend only on etcd's content, not on
// the order of changes, and on the last valid value of keys whose value is refused.
type table struct {
	seed    maphash.Seed
	entries map[string]*entry   // by stored key
	others  map[string][]*entry // by the value's key: entries for it with another spelling; few
	bad     map[string]*entry   // those refused
	round   uint32              // number of the present full read
	changes changes
}

// entry is one stored key.
type entry struct {
	raw  string
	key  string        // of the value; "": the key never had a valid value
	msg  proto.Message // the last valid one
	how  event.Merge   // its merge terms
	hash uint64        // of the stored value
	err  error         // why the stored value is refused; nil: it is msg
	seen uint32        // last round that read the entry
}

// changes are the changes of keys since the last take.
type changes struct {
	values map[string]proto.Message // by the value's key; nil: deleted
	merge  map[string]event.Merge   // merge terms, of the values that have some
	rows   map[string]row           // by stored key
}

// row is the status of a stored key.
type row struct {
	key  string // the value whose state this row shows; "": none
	err  error  // what is wrong with the stored value; nil: nothing
	gone bool   // the key is no longer stored
}

// errShadowed is wrapped by the errors of keys whose value is valid, but which another spelling overrides.
var errShadowed = errors.New("the same value is stored under another spelling of its key, which decides")

func newTable() *table {
	t := &table{seed: maphash.MakeSeed(), entries: map[string]*entry{}, others: map[string][]*entry{}, bad: map[string]*entry{}}
	t.takeChanges()
	return t
}

// takeChanges returns the changes and clears them.
func (t *table) takeChanges() changes {
	out := t.changes
	t.changes = changes{values: map[string]proto.Message{}, merge: map[string]event.Merge{}, rows: map[string]row{}}
	return out
}

// beginRead starts a full read; endRead removes the keys that the read did not find.
func (t *table) beginRead() { t.round++ }

func (t *table) endRead() {
	for _, e := range t.entries {
		if e.seen != t.round {
			t.removeKey(e.raw)
		}
	}
}

// setPair records the stored value of a key. It reports whether the value changed.
func (t *table) setPair(p pair) bool {
	if p.deleted {
		return t.removeKey(p.key)
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
	t.leaveKey(e)
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

// removeKey records that a key is no longer stored.
func (t *table) removeKey(raw string) bool {
	e := t.entries[raw]
	if e == nil {
		return false
	}
	delete(t.entries, raw)
	delete(t.bad, raw)
	t.leaveKey(e)
	t.changes.rows[raw] = row{gone: true}
	if e.key != "" {
		t.decide(e.key)
	}
	return true
}

// leaveKey removes an entry from those for its value's key.
func (t *table) leaveKey(e *entry) {
	if e.key == "" || e.key == e.raw {
		return
	}
	left := slices.DeleteFunc(t.others[e.key], func(o *entry) bool { return o == e })
	if t.others[e.key] = left; len(left) == 0 {
		delete(t.others, e.key)
	}
}

// winner returns the entry that decides about a value: the one with v3's spelling, or else the first by name; nil: none.
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

// decide records the desired value of a key, and updates the rows of all stored keys for it.
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

// row records the status of an entry.
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
		r.err = fmt.Errorf("%w; the earlier value stays", r.err)
	}
	t.changes.rows[e.raw] = r
}

// maxSorted bounds how many refused keys are examined to name some of them.
const maxSorted = 1000

// remark returns how many keys have refused values, and names some; "": none.
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
