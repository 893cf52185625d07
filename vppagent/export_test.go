package vppagent

import (
	"fmt"
	"reflect"
	"time"

	"github.com/contiv-agent/contiv-agent/vppagent/cost"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// SlowVPP makes every request as expensive as thousands, until the next connection: the agent then makes small changes as it makes large
// ones.
func (a *Agent) SlowVPP() { a.g.world.Cost = cost.Model{}.Times(1e5) }

// MissedPart is the key of a value whose part would change if the agent worked out the parts again; "" if the agent knows that it has to, or
// no part would change.
func (a *Agent) MissedPart() (key string) {
	if a.g.partsDue {
		return ""
	}
	was := a.closing.lists
	a.g.partsDue = true
	a.giveParts(func(v *value) { key = v.key })
	if len(was) != len(a.closing.lists) {
		return "the closed interfaces"
	}
	return key
}

// CopyWorld copies the agent's World as Plan does. It returns how the copy differs, which maps the copy shares with the original,
// and the fields that the original uses.
func (a *Agent) CopyWorld() (problems []string, used map[string]bool) {
	defer func(w descriptor.World) { a.g.world.Cost, a.g.world.Workers = w.Cost, w.Workers }(*a.g.world)
	a.SlowVPP() // the sim has one worker and is as fast as any
	a.g.world.Workers = 3
	c := descriptor.NewWorld(a.cfg.Options, nil)
	c.CopyFrom(a.g.world)
	return compareWorlds(a.g.world, c)
}

func compareWorlds(a, b *descriptor.World) (problems []string, used map[string]bool) {
	used = map[string]bool{}
	original, copied := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range original.NumField() {
		name := original.Type().Field(i).Name
		if original.Field(i).Kind() == reflect.Func || name == "facts" { // bound to the graph, and below
			continue
		}
		used[name] = !original.Field(i).IsZero()
		problems = append(problems, compareKnown(name, original.Field(i), copied.Field(i))...)
	}
	copies := b.Known()
	for name, f := range a.Known() {
		v, c := reflect.ValueOf(f), reflect.ValueOf(copies[name])
		problems = append(problems, compareKnown(name, v, c)...)
		if v.Kind() != reflect.Pointer {
			used[name] = v.Len() > 0
			continue
		}
		for i := range v.Elem().NumField() {
			used[name+"."+v.Elem().Type().Field(i).Name] = !v.Elem().Field(i).IsZero()
		}
	}
	return problems, used
}

// compareKnown walks structs and maps: all mutable state.
func compareKnown(name string, original, copied reflect.Value) (problems []string) {
	if original.Type() == reflect.TypeFor[cost.Model]() { // immutable
		if !reflect.DeepEqual(original.Interface(), copied.Interface()) {
			return []string{name + " differs"}
		}
		return nil
	}
	switch original.Kind() {
	case reflect.Struct:
		for i := range original.NumField() {
			problems = append(problems, compareKnown(name+"."+original.Type().Field(i).Name, original.Field(i), copied.Field(i))...)
		}
	case reflect.Pointer, reflect.Interface:
		if original.Kind() == reflect.Pointer && !original.IsNil() && original.Pointer() == copied.Pointer() {
			return []string{name + " is shared"}
		}
		if original.IsNil() != copied.IsNil() {
			return []string{name + " is missing"}
		}
		if !original.IsNil() {
			return compareKnown(name, original.Elem(), copied.Elem())
		}
	case reflect.Map:
		if original.Len() > 0 && original.Pointer() == copied.Pointer() {
			return []string{name + " is shared"}
		}
		if original.Len() != copied.Len() {
			return []string{fmt.Sprintf("%s has %d entries, the copy %d", name, original.Len(), copied.Len())}
		}
		for _, k := range original.MapKeys() {
			other := copied.MapIndex(k)
			if !other.IsValid() {
				return []string{fmt.Sprintf("%s lacks %v", name, k)}
			}
			problems = append(problems, compareKnown(fmt.Sprintf("%s[%v]", name, k), original.MapIndex(k), other)...)
		}
	default:
		if fmt.Sprint(original) != fmt.Sprint(copied) {
			return []string{fmt.Sprintf("%s is %v, in the copy %v", name, original, copied)}
		}
	}
	return problems
}

// PauseAfter is the pause between a turn of rechecks for which VPP took so long, and the next turn.
func PauseAfter(every, took time.Duration) time.Duration {
	r, now := newRecheck(every, nil), time.Now()
	r.advance(now, took)
	return r.next.Sub(now)
}
