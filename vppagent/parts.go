package vppagent

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// give hands the parts of want to the values they are for.
func (g *graph) give(v *value, touch func(*value)) {
	if v.kind == nil || v.kind.Parts == nil {
		return
	}
	var parts []descriptor.Derived
	switch {
	case v.want != nil:
		parts = v.kind.Parts(v.want)
	case v.bad != nil && v.msg != nil && v.kind.Broken != nil && kv.Check(v.key, v.msg) == nil:
		parts = v.kind.Broken(v.key, v.msg)
	}
	var targets []*value
	for _, d := range parts {
		if g.kindOf(d.Key) == nil { // this agent leaves such values to another
			continue
		}
		t := g.node(d.Key)
		if t.parts == nil {
			t.parts = map[*value]any{}
		}
		t.parts[v] = d.State
		targets = append(targets, t)
	}
	before := v.given
	v.given = targets
	for _, t := range before {
		if !slices.Contains(targets, t) {
			delete(t.parts, v)
			g.merge(t, touch)
		}
	}
	for _, t := range targets {
		g.merge(t, touch)
	}
}

// merge makes want of what the message says and the parts others gave.
func (g *graph) merge(v *value, touch func(*value)) {
	if v.idle() {
		if v.want != nil || v.have != nil || len(v.parts) == 0 {
			g.setWant(v, nil, touch)
		}
		return
	}
	givers := slices.SortedFunc(maps.Keys(v.parts), func(a, b *value) int { return strings.Compare(a.key, b.key) })
	parts := make([]any, len(givers))
	for i, giver := range givers {
		parts[i] = v.parts[giver]
	}
	state := v.kind.Merge(v.own, parts)
	if v.want != nil && v.kind.Equal(v.want, state) {
		touch(v)
		return
	}
	g.setWant(v, state, touch)
}

// idle reports that neither the message nor a part makes a value.
func (v *value) idle() bool {
	if v.own != nil {
		return false
	}
	for _, p := range v.parts {
		if v.kind.Idle == nil || !v.kind.Idle(p) {
			return false
		}
	}
	return true
}

// setUses follows have: what it stands on must not go.
func (g *graph) setUses(v *value) {
	if v.kind.Stands == nil {
		return
	}
	var uses []*value
	if v.have != nil {
		for _, d := range v.kind.Dependencies(v.have) {
			if d.Loose {
				uses = append(uses, g.node(d.Key))
			}
		}
	}
	for _, u := range v.uses {
		if !slices.Contains(uses, u) {
			delete(u.users, v)
			g.collect(u)
		}
	}
	for _, u := range uses {
		if u.users == nil {
			u.users = map[*value]struct{}{}
		}
		u.users[v] = struct{}{}
	}
	v.uses = uses
}

// sure is what VPP certainly has of a key, if that is as it is wanted; nil otherwise.
func (g *graph) sure(key string) any {
	v := g.values[key]
	if v == nil || v.have == nil || v.unsure || v.want == nil || !v.kind.Equal(v.have, v.want) {
		return nil
	}
	return v.have
}
