package controller

import (
	"maps"
	"slices"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/model"
)

// Values is everything wanted in VPP, by who wants it. It implements renderer.Sink for the internal owners and takes
// whole sets or changes from external sources. It is owned by the controller's goroutine; the zero value is not usable.
//
// Several owners may want the same key (two Services share an external address): the owner that sorts first decides,
// and the key goes when its last owner does. An external value for a key is merged over the internal one (proto.Merge,
// internal is destination), external sources in the order of their names.
type Values struct {
	owners   map[string]*owner
	claims   map[string][]string // key → owners, sorted
	external map[string]keyed.Values
	sources  []string                 // names of external, sorted
	sent     map[string]proto.Message // what the last transactions asked for
	dirty    map[string]struct{}
}

type owner struct {
	values map[string]proto.Message
	notes  []model.Note
}

// NewValues returns an empty table.
func NewValues() *Values {
	return &Values{
		owners:   map[string]*owner{},
		claims:   map[string][]string{},
		external: map[string]keyed.Values{},
		sent:     map[string]proto.Message{},
		dirty:    map[string]struct{}{},
	}
}

// Set records everything the owner wants now, and what there is to say about it; nil values and nil notes remove the
// owner. Values must not be modified afterwards.
func (v *Values) Set(name string, values map[string]proto.Message, notes []model.Note) {
	old := v.owners[name]
	if old == nil {
		old = &owner{}
	}
	for key := range old.values {
		if _, keep := values[key]; !keep {
			v.disclaim(key, name)
			v.dirty[key] = struct{}{}
		}
	}
	for key, msg := range values {
		was, had := old.values[key]
		if !had {
			v.claim(key, name)
		}
		if !had || !keyed.Equal(was, msg) {
			v.dirty[key] = struct{}{}
		}
	}
	if len(values) == 0 && len(notes) == 0 {
		delete(v.owners, name)
		return
	}
	v.owners[name] = &owner{values: values, notes: notes}
}

func (v *Values) claim(key, name string) {
	at, found := slices.BinarySearch(v.claims[key], name)
	if !found {
		v.claims[key] = slices.Insert(v.claims[key], at, name)
	}
}

func (v *Values) disclaim(key, name string) {
	at, found := slices.BinarySearch(v.claims[key], name)
	if !found {
		return
	}
	if v.claims[key] = slices.Delete(v.claims[key], at, at+1); len(v.claims[key]) == 0 {
		delete(v.claims, key)
	}
}

// SetExternal applies what an external source wants: a change, or with resync everything.
func (v *Values) SetExternal(source string, values map[string]proto.Message, resync bool) {
	have := v.external[source]
	if have == nil {
		have = keyed.Values{}
		v.external[source] = have
		v.sources = append(v.sources, source)
		sort.Strings(v.sources)
	}
	if resync {
		for key := range have {
			if values[key] == nil {
				delete(have, key)
				v.dirty[key] = struct{}{}
			}
		}
	}
	for key, msg := range values {
		if msg == nil {
			delete(have, key)
		} else {
			have[key] = msg
		}
		v.dirty[key] = struct{}{}
	}
}

// effective is what VPP shall have for a key; nil: nothing.
func (v *Values) effective(key string) proto.Message {
	var msg proto.Message
	if names := v.claims[key]; len(names) > 0 {
		msg = v.owners[names[0]].values[key]
	}
	merged := false
	for _, source := range v.sources {
		ext := v.external[source][key]
		switch {
		case ext == nil:
		case msg == nil:
			msg = ext
		default:
			if !merged {
				msg, merged = proto.Clone(msg), true
			}
			proto.Merge(msg, ext)
		}
	}
	return msg
}

// changes are the keys whose wanted value differs from what was sent, and forgets that they were dirty; nil: none.
func (v *Values) changes() map[string]proto.Message {
	var out map[string]proto.Message
	for key := range v.dirty {
		now, was := v.effective(key), v.sent[key]
		if now == nil && was == nil || now != nil && was != nil && keyed.Equal(now, was) {
			continue
		}
		if out == nil {
			out = make(map[string]proto.Message, len(v.dirty))
		}
		out[key] = now
		v.remember(key, now)
	}
	clear(v.dirty)
	return out
}

// all is everything wanted; it counts as sent.
func (v *Values) all() map[string]proto.Message {
	out := make(map[string]proto.Message, len(v.claims))
	for key, names := range v.claims {
		msg := v.owners[names[0]].values[key]
		if len(v.sources) > 0 {
			msg = v.effective(key)
		}
		if msg != nil {
			out[key] = msg
		}
	}
	for _, values := range v.external {
		for key := range values {
			if msg := v.effective(key); msg != nil {
				out[key] = msg
			}
		}
	}
	clear(v.dirty)
	v.sent = maps.Clone(out)
	return out
}

func (v *Values) remember(key string, msg proto.Message) {
	if msg == nil {
		delete(v.sent, key)
	} else {
		v.sent[key] = msg
	}
}

// Owned is what one owner wants: the keys, sorted, and the notes.
type Owned struct {
	Owner string
	Keys  []string
	Notes []model.Note
}

// List is every owner whose name starts with the prefix, sorted by name.
func (v *Values) List(prefix string) []Owned {
	var out []Owned
	for name, o := range v.owners {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		out = append(out, Owned{Owner: name, Keys: keyed.Values(o.values).Keys(), Notes: o.notes})
	}
	slices.SortFunc(out, func(a, b Owned) int { return strings.Compare(a.Owner, b.Owner) })
	return out
}

// Each calls f with everything that was asked of VPP so far, in no particular order.
func (v *Values) Each(f func(key string, msg proto.Message)) {
	for key, msg := range v.sent {
		f(key, msg)
	}
}
