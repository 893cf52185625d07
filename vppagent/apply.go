package vppagent

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vppagent/expand"
)

// putState sets the state compiled from v's message. nil: the message is absent or broken; state then keeps only the parts that the value
// gives to others. touch receives every value that must be planned again.
func (g *graph) putState(v *value, state any, touch func(*value)) {
	if v.kind == nil || expand.Plain(v.kind.Descriptor) {
		if v.bad != nil {
			state = nil
		}
		g.setWant(v, state, touch)
		return
	}
	g.set.Put(v.key, state, v.bad != nil, func(x expand.Value) { g.applyDesired(x, touch) })
}

// give sets the part that the agent itself gives to a key; nil: none.
func (g *graph) give(key string, part any, touch func(*value)) {
	g.set.Give(key, part, func(x expand.Value) { g.applyDesired(x, touch) })
}

// applyDesired takes over the new desired state of a key.
func (g *graph) applyDesired(x expand.Value, touch func(*value)) {
	v := g.values[x.Key]
	if v == nil {
		if x.State == nil && x.Base == "" {
			return
		}
		v = g.nodeOf(x.Key)
	}
	switch {
	case x.Base != "":
		g.setBase(v, g.nodeOf(x.Base))
	case v.base != nil && (x.State == nil || x.Property):
		v.base.derived = slices.DeleteFunc(v.base.derived, func(d *value) bool { return d == v })
		if x.Property { // a property ends with the value that made it; a value is still removed before its base
			v.base = nil
		}
	}
	if x.Property || x.Unchanged {
		touch(v)
		return
	}
	g.setWant(v, x.State, touch)
}

func (g *graph) setBase(v, base *value) {
	if v.base != nil && v.base != base {
		v.base.derived = slices.DeleteFunc(v.base.derived, func(d *value) bool { return d == v })
	}
	v.base = base
	if !slices.Contains(base.derived, v) {
		base.derived = append(base.derived, v)
	}
}
