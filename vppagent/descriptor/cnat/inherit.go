package cnat

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// mostMissed bounds the names of interfaces that are remembered although they are gone.
const mostMissed = 1024

// inherit knows the interfaces in tables. VPP keeps an index in its tables after the interface was deleted, and gives the index to the next one
// (cnat_snat_policy_add_del_if, VPP 24.06). A new pod without cnat would get the sources of the former one as soon as its packets meet cnat on the uplink.
type inherit struct {
	tabled map[uint32]string // names, as values have them, of interfaces that the agent put into tables, by index
	lost   bool              // the tables may have an index of an interface that was deleted, as far as an agent that begins knows, too
	// missed are the names that values have of interfaces that VPP's list lacked. A list that was incomplete has them again, and cnat may be on them
	// although the values are gone meanwhile.
	missed map[string]bool
}

// suspects reports whether VPP may have cnat on interfaces that no value names.
func (f *inherit) suspects(w *descriptor.World) bool { return f.left(w) || len(f.returned(w)) > 0 }

// returned are the missed interfaces that VPP's list has again.
func (f *inherit) returned(w *descriptor.World) (names []string) {
	for name := range f.missed {
		if i, ok := w.Interface(name); ok && i.Nameable() && w.Stated {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// appendReturned appends the returned interfaces on which cnat still is, although no value names them. It looks at each once.
func (r *reader) appendReturned(out []descriptor.Found, c descriptor.Candidates) ([]descriptor.Found, error) {
	facts := factsOf(r.w)
	for _, name := range facts.returned(r.w) {
		key := kv.Key((&cnatInterface{name: name}).interfaceMessage())
		named := false
		c.Each(func(other string, _ any, _ bool) { named = named || other == key })
		if !named {
			got, err := r.readInterface(name)
			if err != nil {
				return out, err
			}
			if *got != (cnatInterface{name: name}) {
				out = append(out, descriptor.Found{Key: key, State: got, Ours: true})
			}
		}
		delete(facts.missed, name)
	}
	return out, nil
}

// left reports whether a pod's interface may be in the tables by the index of a former one. Before all values are known, nobody can say which pods belong there.
func (f *inherit) left(w *descriptor.World) bool {
	maps.DeleteFunc(f.tabled, func(index uint32, name string) bool {
		i, ok := w.Interface(name)
		gone := !ok || i.Index != index
		f.lost = f.lost || gone
		return gone
	})
	return f.lost && w.Stated
}

// isLost is left, also for an interface that was deleted before the agent compared it with its journal.
func isLost(w *descriptor.World, c descriptor.Candidates) bool {
	lost := factsOf(w).left(w)
	c.Each(func(_ string, state any, wanted bool) {
		_, there := w.Interface(state.(*cnatInterface).name)
		lost = lost || w.Stated && !wanted && !there
	})
	return lost
}

// appendInherited appends the pods' interfaces in the tables that no value puts there.
func appendInherited(out []descriptor.Found, w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) []descriptor.Found {
	shown, err := shownSnat(d)
	if err != nil {
		if r, _ := d.Reply(idSnatShown); r.Msg != nil { // VPP without the plugin has no tables
			factsOf(w).lost = false
		}
		return out
	}
	valued := map[string]bool{}
	c.Each(func(_ string, state any, _ bool) { valued[w.Canonical(state.(*cnatInterface).name)] = true })
	for _, f := range out { // returned ones, too
		valued[w.Canonical(f.State.(*cnatInterface).name)] = true
	}
	found := map[string]*cnatInterface{}
	factsOf(w).lost = false
	for n, names := range shown.tables {
		for vppName := range names {
			i, ok := w.Interface(vppName)
			switch {
			case !ok:
				factsOf(w).lost = true // the next interface will inherit it
			case i.OfPod() && !valued[i.Name]:
				if found[i.Name] == nil {
					found[i.Name] = &cnatInterface{name: i.Name}
				}
				found[i.Name].tables[n] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, descriptor.Found{Key: kv.Key((&cnatInterface{name: name}).interfaceMessage()), State: found[name], Ours: true})
	}
	return out
}
