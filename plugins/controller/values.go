package controller

import (
	"maps"
	"slices"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
)

// Values holds the desired state of all owners. It implements renderer.Sink for the internal owners, and takes whole sets or changes
// from external sources. The controller's goroutine owns it. The zero value is not usable.
//
// Several owners may want the same key (two Services share an external address). The owner that sorts first decides, and the key is
// removed with its last owner. An external value for a key is merged over the internal one (proto.Merge with the internal value as
// destination, unless the merge terms differ), external sources in the order of their names.
type Values struct {
	owners   map[string]*owner
	entries  map[string]*entry // by key: every key that an owner wants or that was sent
	dirty    []*entry          // entries marked dirty
	held     []*entry          // dirty entries that wait
	sent     int               // number of entries whose sent is not nil
	external map[string]*wishes
	sources  []string // names of external, sorted
	// onSent receives the old and the new sent value of a key; either may be nil.
	onSent func(was, now proto.Message)
	opening
	ending
}

type owner struct {
	name   string
	values map[string]proto.Message
	notes  []model.Note
}

// wishes are the desired values of an external source.
type wishes struct {
	values kv.Values
	merge  map[string]event.Merge // merge terms of the keys that differ from plain proto.Merge
}

// entry is one key.
type entry struct {
	key   string
	first *owner        // the owner that decides; nil: none wants the key
	more  []*owner      // the others, sorted by name
	sent  proto.Message // value that the last transactions sent; nil: none
	other proto.Message // a desired value known to differ from sent; nil: none
	dirty bool
	begun bool // sent is an interim state of the desired value
}

// NewValues returns an empty table.
func NewValues() *Values {
	return &Values{owners: map[string]*owner{}, entries: map[string]*entry{}, external: map[string]*wishes{}}
}

// Expect makes room for that many further values.
func (v *Values) Expect(values int) {
	if len(v.entries) >= values/2 {
		return
	}
	entries := make(map[string]*entry, len(v.entries)+values)
	maps.Copy(entries, v.entries)
	v.entries = entries
}

// Set records all values that the owner wants now, and its notes. Nil values and nil notes remove the owner. The caller must not
// modify the values afterwards.
func (v *Values) Set(name string, values map[string]proto.Message, notes []model.Note) {
	o := v.owners[name]
	if o == nil {
		if len(values) == 0 && len(notes) == 0 {
			return
		}
		o = &owner{name: name}
		v.owners[name] = o
	}
	for key := range o.values {
		if _, keep := values[key]; !keep {
			e := v.entry(key)
			e.disclaim(o)
			v.mark(e)
		}
	}
	for key, msg := range values {
		was, had := o.values[key]
		if had && kv.Equal(was, msg) {
			continue
		}
		e := v.entry(key)
		if !had {
			e.claim(o)
		}
		v.mark(e)
	}
	o.values, o.notes = values, notes
	if len(values) == 0 && len(notes) == 0 {
		delete(v.owners, name)
	}
}

func (v *Values) entry(key string) *entry {
	e := v.entries[key]
	if e == nil {
		e = &entry{key: key}
		v.entries[key] = e
	}
	return e
}

func (v *Values) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		v.dirty = append(v.dirty, e)
	}
}

func (e *entry) claim(o *owner) {
	if e.first == nil {
		e.first = o
		return
	}
	if o.name < e.first.name {
		e.first, o = o, e.first
	}
	at, _ := slices.BinarySearchFunc(e.more, o, compareOwners)
	e.more = slices.Insert(e.more, at, o)
}

func (e *entry) disclaim(o *owner) {
	switch {
	case e.first != o:
		e.more = slices.DeleteFunc(e.more, func(x *owner) bool { return x == o })
	case len(e.more) == 0:
		e.first = nil
	default:
		e.first, e.more = e.more[0], e.more[1:]
	}
}

func compareOwners(a, b *owner) int { return strings.Compare(a.name, b.name) }

// SetExternal applies a change of an external source, or with resync its whole desired state. It returns the affected keys, sorted:
// the keys of values, and the keys that a resync removed.
func (v *Values) SetExternal(ev *event.External) []string {
	keys := make([]string, 0, len(ev.Values))
	have := v.external[ev.Source]
	if have == nil {
		have = &wishes{values: kv.Values{}, merge: map[string]event.Merge{}}
		v.external[ev.Source] = have
		v.sources = append(v.sources, ev.Source)
		sort.Strings(v.sources)
	}
	if ev.Resync {
		for key := range have.values {
			if _, named := ev.Values[key]; !named {
				have.setWish(key, nil, event.Merge{})
				v.mark(v.entry(key))
				keys = append(keys, key)
			}
		}
	}
	for key, msg := range ev.Values {
		have.setWish(key, msg, ev.Merge[key])
		v.mark(v.entry(key))
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (w *wishes) setWish(key string, msg proto.Message, merge event.Merge) {
	delete(w.merge, key)
	if msg == nil {
		delete(w.values, key)
		return
	}
	if w.values[key] = msg; !merge.Zero() {
		w.merge[key] = merge
	}
}

// effective returns the desired value of a key; nil: none.
func (v *Values) effective(e *entry) proto.Message {
	var msg proto.Message
	if e.first != nil {
		msg = e.first.values[e.key]
	}
	merged := false
	for _, source := range v.sources {
		wants := v.external[source]
		ext := wants.values[e.key]
		switch {
		case ext == nil:
		case msg == nil:
			msg = ext
		default:
			if !merged {
				msg, merged = proto.Clone(msg), true
			}
			wants.merge[e.key].Into(msg, ext)
		}
	}
	return msg
}

// OnSent makes the loop call f with the old and the new sent value of each key; either may be nil.
func (v *Values) OnSent(f func(was, now proto.Message)) { v.onSent = f }

// recordSent records the sent value of a key, and drops a key that no owner wants.
func (v *Values) recordSent(e *entry, msg proto.Message) {
	if v.onSent != nil {
		v.onSent(e.sent, msg)
	}
	v.ends(e, msg)
	if e.sent != nil {
		v.sent--
	}
	if msg != nil {
		v.sent++
	}
	e.sent, e.other, e.dirty, e.begun = msg, nil, false, false
	if msg == nil {
		delete(v.entries, e.key)
	}
}

// changedValues returns the keys whose desired value differs from the sent one, with that value; nil deletes. It clears their dirty marks.
// Keys in wait are not returned and stay dirty. So do values that open: beside other changes, their interim states are returned.
func (v *Values) changedValues(wait map[string]struct{}) map[string]proto.Message {
	var out map[string]proto.Message
	var last []*entry
	dirty := v.dirty
	v.dirty, v.held, v.begun = nil, nil, 0
	for _, e := range dirty {
		now, was := v.effective(e), e.sent
		if now != nil && was != nil && now != e.other && kv.Equal(now, was) {
			e.dirty, e.begun = false, false
			continue
		}
		if _, waits := wait[e.key]; waits {
			e.other = now // not compared again in every turn
			v.dirty, v.held = append(v.dirty, e), append(v.held, e)
			if e.begun {
				v.begun++
			}
			continue
		}
		if v.opens(e, now) {
			last = append(last, e)
			continue
		}
		v.recordSent(e, now)
		if now == nil && was == nil {
			continue
		}
		if out == nil {
			out = make(map[string]proto.Message, len(v.dirty))
		}
		out[e.key] = now
	}
	return v.openLast(last, out)
}

// allValues returns the whole desired state and counts it as sent.
func (v *Values) allValues() map[string]proto.Message {
	out := make(map[string]proto.Message, len(v.entries))
	for key, e := range v.entries {
		msg := v.effective(e)
		if v.recordSent(e, msg); msg != nil {
			out[key] = msg
		}
	}
	v.dirty, v.held, v.begun = nil, nil, 0
	return out
}

// Owned returns the keys of one owner, sorted, and its notes.
type Owned struct {
	Owner string
	Keys  []string
	Notes []model.Note
}

// List returns every owner whose name starts with the prefix, sorted by name.
func (v *Values) List(prefix string) []Owned {
	var out []Owned
	for name, o := range v.owners {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		out = append(out, Owned{Owner: name, Keys: kv.Values(o.values).Keys(), Notes: o.notes})
	}
	slices.SortFunc(out, func(a, b Owned) int { return strings.Compare(a.Owner, b.Owner) })
	return out
}

// Each calls f with every key and value that was sent to VPP, in no particular order.
func (v *Values) Each(f func(key string, msg proto.Message)) {
	for key, e := range v.entries {
		if e.sent != nil {
			f(key, e.sent)
		}
	}
}

// Sent returns the last value that was sent to VPP for a key; nil: none.
func (v *Values) Sent(key string) proto.Message {
	if e := v.entries[key]; e != nil {
		return e.sent
	}
	return nil
}
