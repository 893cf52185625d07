// Package expand turns the values of messages into the plain values that the planner compares with VPP. Each plain value has one
// state and separate dependencies, and does not show which values it was made of.
//
//	message ─ Compile ─▶ state ─▶ the value itself ──────────────────────────────▶ Value
//	                       │                                                         ▲
//	                       └ Derived ─┬ of a kind without Merge: a value on its base ─┤
//	                                  └ of a kind with Merge: a part ─ Merge ─────────┘ which may derive in turn
//
// Invariant: the values depend on the last state of each key only, not on the order in which states are put.
package expand

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Value is the new desired state of a key.
type Value struct {
	Key   string
	State any // nil: nothing is wanted, or the key is a Property without a state
	// Base is the key of the value that this one is derived from; "": it is not derived, or no longer.
	Base string
	// Property reports that no kind has the key: other values may depend on it, and it exists while Base does.
	Property bool
	// Unchanged reports that State is equal to the last one, although a state that it was made of changed.
	Unchanged bool
}

// Set has the states of the values that others follow from, and the values that follow. It keeps no record of a value that derives nothing
// and is not merged.
type Set struct {
	kindOf func(key string) *descriptor.Descriptor
	// nodes has the values that derive others, are derived, or are merged.
	nodes map[string]*node
}

// node is one key.
type node struct {
	own     any            // state of the message, for Merge; nil: no message
	parts   map[string]any // by giver
	state   any            // desired state; nil: none
	base    string         // the key that it is derived from
	derived []string       // values whose base is this key
	given   []string       // values that have a part from this key
}

// Agent is the giver of the parts that the agent itself gives. It sorts before all keys.
const Agent = ""

// New returns an empty set. kindOf returns nil for a key that no kind has.
func New(kindOf func(key string) *descriptor.Descriptor) *Set {
	return &Set{kindOf: kindOf, nodes: map[string]*node{}}
}

// Clone returns an independent copy.
func (s *Set) Clone(kindOf func(key string) *descriptor.Descriptor) *Set {
	c := New(kindOf)
	for key, n := range s.nodes {
		m := *n
		m.parts, m.derived, m.given = maps.Clone(n.parts), slices.Clone(n.derived), slices.Clone(n.given)
		c.nodes[key] = &m
	}
	return c
}

// Plain reports that each value of a kind equals its message, and that no value follows from it.
func Plain(d *descriptor.Descriptor) bool { return d == nil || d.Derived == nil && d.Merge == nil }

// Put sets the state of a key's message; nil: no message. emit receives the values that follow, each after the values that it follows
// from. broken reports that the message did not compile: it states no value, but the parts that state gives to others stay.
func (s *Set) Put(key string, state any, broken bool, emit func(Value)) {
	d := s.kindOf(key)
	want := state
	if broken {
		want = nil
	}
	if Plain(d) {
		emit(Value{Key: key, State: want})
		return
	}
	n := s.nodeOf(key)
	if d.Merge != nil {
		n.own = want
		s.merge(key, n, d, emit)
	} else {
		s.setDesired(key, n, d, want, state, emit)
	}
	s.collect(key)
}

// Give sets the part that the agent itself gives to a key of a kind with Merge; nil: none. An equal part changes nothing.
func (s *Set) Give(key string, part any, emit func(Value)) {
	d := s.kindOf(key)
	if d == nil || d.Merge == nil || s.Given(key) == part {
		return
	}
	n := s.nodeOf(key)
	n.setPart(Agent, part)
	s.merge(key, n, d, emit)
	s.collect(key)
}

// Given returns the part that the agent itself gives to a key; nil: none.
func (s *Set) Given(key string) any {
	if n := s.nodes[key]; n != nil {
		return n.parts[Agent]
	}
	return nil
}

// Said reports that a key of a kind with Merge has a message.
func (s *Set) Said(key string) bool {
	n := s.nodes[key]
	return n != nil && n.own != nil
}

func (s *Set) nodeOf(key string) *node {
	n := s.nodes[key]
	if n == nil {
		n = &node{}
		s.nodes[key] = n
	}
	return n
}

// collect removes a key without any state.
func (s *Set) collect(key string) {
	if n := s.nodes[key]; n != nil && n.own == nil && n.state == nil && n.base == "" && len(n.parts)+len(n.derived)+len(n.given) == 0 {
		delete(s.nodes, key)
	}
}

func (n *node) setPart(giver string, part any) {
	if part == nil {
		delete(n.parts, giver)
		return
	}
	if n.parts == nil {
		n.parts = map[string]any{}
	}
	n.parts[giver] = part
}

// merge makes one state of the message's state and the parts that others give.
func (s *Set) merge(key string, n *node, d *descriptor.Descriptor, emit func(Value)) {
	var state any
	if n.own != nil || len(n.parts) > 0 {
		parts := make([]any, 0, len(n.parts))
		for _, giver := range slices.Sorted(maps.Keys(n.parts)) {
			parts = append(parts, n.parts[giver])
		}
		state = d.Merge(n.own, parts)
	}
	if state != nil && n.state != nil && d.Equal(n.state, state) {
		emit(Value{Key: key, State: n.state, Unchanged: true})
		return
	}
	s.setDesired(key, n, d, state, state, emit)
}

// setDesired makes want the desired state of a key, updates the values on this base, and the parts that said gives to others.
func (s *Set) setDesired(key string, n *node, d *descriptor.Descriptor, want, said any, emit func(Value)) {
	n.state = want
	emit(Value{Key: key, State: want, Base: n.base})
	var follow []descriptor.Derived
	if said != nil && d.Derived != nil {
		follow = d.Derived(said)
	}
	if want == nil {
		s.derive(key, n, nil, emit)
	} else {
		s.derive(key, n, follow, emit)
	}
	s.give(key, n, follow, emit)
}

// derive makes the values that a key's value derives.
func (s *Set) derive(key string, n *node, follow []descriptor.Derived, emit func(Value)) {
	var derived []string
	for _, f := range follow {
		d := s.kindOf(f.Key)
		if d != nil && d.Merge != nil || d == nil && f.State != nil { // a part, or of a kind that this agent does not have
			continue
		}
		derived = append(derived, f.Key)
		c := s.nodeOf(f.Key)
		moved := c.base != key
		switch c.base = key; {
		case d == nil:
			emit(Value{Key: f.Key, Base: key, Property: true})
		case moved || c.state == nil || !d.Equal(c.state, f.State):
			s.setDesired(f.Key, c, d, f.State, f.State, emit)
		}
	}
	before := n.derived
	n.derived = derived
	for _, old := range before {
		c := s.nodes[old]
		if slices.Contains(derived, old) || c == nil || c.base != key { // or another value has it now
			continue
		}
		if c.base = ""; s.kindOf(old) == nil {
			emit(Value{Key: old, Property: true})
		} else {
			s.setDesired(old, c, s.kindOf(old), nil, nil, emit)
		}
		s.collect(old)
	}
}

// give passes the parts to the values that they are for.
func (s *Set) give(key string, n *node, follow []descriptor.Derived, emit func(Value)) {
	var targets []string
	for _, f := range follow {
		if d := s.kindOf(f.Key); d != nil && d.Merge != nil {
			s.nodeOf(f.Key).setPart(key, f.State)
			targets = append(targets, f.Key)
		}
	}
	before := n.given
	n.given = targets
	for _, t := range before {
		if !slices.Contains(targets, t) {
			s.nodes[t].setPart(key, nil)
			s.merge(t, s.nodes[t], s.kindOf(t), emit)
			s.collect(t)
		}
	}
	for _, t := range targets {
		s.merge(t, s.nodes[t], s.kindOf(t), emit)
	}
}

// Values returns the current form of every value that emit received, sorted by key: values that follow or that others follow from.
func (s *Set) Values() (out []Value) {
	for key, n := range s.nodes {
		v := Value{Key: key, State: n.state, Base: n.base, Property: s.kindOf(key) == nil}
		if v.State != nil || v.Property {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b Value) int { return strings.Compare(a.Key, b.Key) })
	return out
}
