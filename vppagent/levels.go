package vppagent

import (
	"slices"
	"strings"
)

// levels are values by level, from 1; the values of a level are sorted by key.
type levels [][]*value

// sort inserts the fitting values of list into their levels.
func (l *levels) sort(list []*value, level func(*value) int, fits func(*value) bool) {
	*l = nil
	for _, v := range list {
		if !fits(v) {
			continue
		}
		at := level(v)
		for len(*l) < at {
			*l = append(*l, nil)
		}
		(*l)[at-1] = append((*l)[at-1], v)
	}
}

// gather moves the steps of a kind with claims to the last level that any of them has: one value may take a claim that another
// frees, and the requests of one level are ordered. A kind that must follow others is put one level after them.
func (l *levels) gather() {
	last := map[string]int{}
	moving := map[*kind]bool{}
	for i, values := range *l {
		for _, v := range values {
			k := v.kind
			if at, known := last[k.Name]; !known || at != i {
				last[k.Name] = i
			}
			if k.Claims != nil {
				free, known := moving[k]
				moving[k] = (free || !known) && len(v.dependents) == 0 && len(v.derived) == 0
			}
		}
	}
	for range moving { // a kind also follows those that moved themselves
		for k, free := range moving {
			for _, name := range k.After {
				if before, ok := last[name]; ok && free {
					last[k.Name] = max(last[k.Name], before+1)
				}
			}
		}
	}
	for k, free := range moving {
		if free { // no other value depends on its level
			*l = append(*l, make(levels, max(0, last[k.Name]+1-len(*l)))...)
			l.move(k, last[k.Name])
		}
	}
}

// move moves the values of a kind from the levels before one to it.
func (l levels) move(k *kind, to int) {
	moved := false
	for i, values := range l[:to] {
		var stay []*value
		for _, v := range values {
			if v.kind == k {
				l[to], moved = append(l[to], v), true
			} else {
				stay = append(stay, v)
			}
		}
		l[i] = stay
	}
	if moved {
		slices.SortFunc(l[to], func(a, b *value) int { return strings.Compare(a.key, b.key) })
	}
}

// steps are the levels that have values.
func (l levels) steps(action func(*value) Action) [][]Step {
	var out [][]Step
	for _, values := range l {
		if len(values) == 0 {
			continue
		}
		steps := make([]Step, len(values))
		for i, v := range values {
			steps[i] = Step{Action: action(v), Key: v.key, v: v}
		}
		out = append(out, steps)
	}
	return out
}
