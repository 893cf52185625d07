package calc

import (
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/calc/labelindex"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// sets follows the members of each IP set. It does not store members: a member is in a set while one of its owners
// matches the set. Owners are the endpoints and network sets that have the address, nearly always one. So a set changes
// only when the first owner is added or the last one is removed.
type sets struct {
	index    *labelindex.Index
	contents []content // by item
	shared   []bool    // by item: another item may have a part of its content, too
	owners   owners
	services serviceIndex

	byID     map[string]*ipset
	byHandle []*ipset // live sets only
	handles  labelindex.Handles
	fresh    map[string]*ipset // named since the last flush, and not live
	idle     map[string]*ipset // no longer named since the last flush
	dirty    map[string]*ipset // live sets with changes

	scratch memberList // reused space
}

func newSets() *sets {
	return &sets{
		index: labelindex.New(), owners: newOwners(), services: newServiceIndex(),
		byID: map[string]*ipset{}, fresh: map[string]*ipset{}, idle: map[string]*ipset{}, dirty: map[string]*ipset{},
	}
}

// acquire counts one more rule list that names the set, and returns the shared ipset.
func (x *sets) acquire(s *ipset) *ipset {
	if known := x.byID[s.id]; known != nil {
		s = known
	} else {
		x.byID[s.id] = s
		x.fresh[s.id] = s
	}
	s.refs++
	delete(x.idle, s.id)
	return s
}

func (x *sets) releaseSet(s *ipset) {
	if s.refs--; s.refs == 0 {
		x.idle[s.id] = s
	}
}

// setItem sets labels, parents and content of an endpoint or network set.
func (x *sets) setItem(h uint32, labels map[string]string, parents []string, c content) {
	for int(h) >= len(x.contents) {
		x.contents, x.shared = append(x.contents, content{}), append(x.shared, false)
	}
	old := x.contents[h]
	changed := !old.equal(c)
	if changed {
		x.contents[h] = c
		x.addOwner(h, c)
		x.removeOwner(h, old, c)
	}
	before := x.index.Matches(h)
	added, removed := x.index.SetItem(h, labels, parents)
	if changed {
		for _, s := range before {
			if _, gone := slices.BinarySearch(removed, s); !gone {
				x.replace(h, x.byHandle[s], old, c)
			}
		}
	}
	x.matched(h, c, added, true, false)
	x.matched(h, old, removed, false, false)
}

// dropItem removes an endpoint or network set.
func (x *sets) dropItem(h uint32) {
	old := x.contents[h]
	x.contents[h] = content{}
	x.removeOwner(h, old, content{})
	x.matched(h, old, x.index.DropItem(h), false, false)
	x.shared[h] = false
}

// setParent sets the labels of a profile.
func (x *sets) setParent(name string, labels map[string]string, known bool) {
	x.index.SetParent(name, labels, known, func(h uint32, added, removed []uint32) {
		x.matched(h, x.contents[h], added, true, true)
		x.matched(h, x.contents[h], removed, false, true)
	})
}

// matched records the changes of sets that item h with content c began or ceased to match, alone or together with its
// kind.
func (x *sets) matched(h uint32, c content, list []uint32, added, together bool) {
	for _, handle := range list {
		s := x.byHandle[handle]
		c.each(s, func(m member) {
			if !x.heldByOther(h, s, m, together) {
				x.noteMember(s, m, added)
			}
		})
	}
}

// replace records the changes of a set that item h still matches while its content changes.
func (x *sets) replace(h uint32, s *ipset, old, c content) {
	c.each(s, func(m member) {
		if !old.contains(s, m) && !x.heldByOther(h, s, m, false) {
			x.noteMember(s, m, true)
		}
	})
	old.each(s, func(m member) {
		if !c.contains(s, m) && !x.heldByOther(h, s, m, false) {
			x.noteMember(s, m, false)
		}
	})
}

func (x *sets) noteMember(s *ipset, m member, added bool) {
	s.changeMember(m, added)
	x.dirty[s.id] = s
}

// heldByOther reports whether an item other than h keeps member m in the set. If h changes together with its kind, only
// the first item of the kind with m counts, for additions and removals alike.
func (x *sets) heldByOther(h uint32, s *ipset, m member, together bool) bool {
	if !x.shared[h] {
		return false
	}
	first, ok := x.owners.first(m.CIDR)
	if !ok {
		return false
	}
	me := x.index.PlaceOf(h)
	holds := func(o uint32) bool {
		if o == h {
			return false
		}
		if other := x.index.PlaceOf(o); together && other.Kind == me.Kind {
			return other.At < me.At && x.contents[o].contains(s, m)
		}
		return x.index.IsMatch(o, s.handle) && x.contents[o].contains(s, m)
	}
	return holds(first) || slices.ContainsFunc(x.owners.others[m.CIDR], holds)
}

func (x *sets) addOwner(h uint32, c content) {
	c.keys(func(n cidr.CIDR) {
		first, taken := x.owners.first(n)
		switch {
		case !taken:
			x.owners.setFirst(n, h)
		case first != h:
			if others := x.owners.others[n]; !slices.Contains(others, h) {
				x.owners.others[n] = append(others, h)
			}
			x.shared[h], x.shared[first] = true, true
		case len(x.owners.others[n]) > 0:
			x.shared[h] = true
		}
	})
}

// removeOwner removes item h from the owners of networks that it had in old and has no more in now.
func (x *sets) removeOwner(h uint32, old, now content) {
	if old.empty() {
		return
	}
	kept := map[cidr.CIDR]bool{}
	now.keys(func(n cidr.CIDR) { kept[n] = true })
	old.keys(func(n cidr.CIDR) {
		if kept[n] {
			return
		}
		rest := x.owners.others[n]
		switch i := slices.Index(rest, h); {
		case i >= 0:
			rest = slices.Delete(rest, i, i+1)
		case !x.firstIs(n, h):
			return // seen before: a network and its own address
		case len(rest) > 0:
			x.owners.setFirst(n, rest[len(rest)-1])
			rest = rest[:len(rest)-1]
		default:
			x.owners.dropFirst(n)
		}
		if len(rest) == 0 {
			delete(x.owners.others, n)
		} else {
			x.owners.others[n] = rest
		}
	})
}

func (x *sets) firstIs(n cidr.CIDR, h uint32) bool {
	first, ok := x.owners.first(n)
	return ok && first == h
}

// flushSets returns the messages that bring the data plane's sets up to date, and those that remove sets no rule names. The
// latter must be sent after all messages that remove rules.
func (x *sets) flushSets() (updates, removes []*felix.ToDataplane) {
	x.collect(func(id string) { removes = append(removes, ipsetRemove(id)) })
	for _, id := range sortedKeys(x.fresh) {
		s := x.fresh[id]
		updates = append(updates, ipsetUpdate(s, x.start(s)))
	}
	clear(x.fresh)
	for _, id := range sortedKeys(x.dirty) {
		if s := x.dirty[id]; len(s.delta) > 0 {
			updates = append(updates, ipsetDelta(s))
		}
		x.dirty[id].delta = nil
	}
	clear(x.dirty)
	return updates, removes
}

// collect drops sets that are no longer named, and reports those the data plane has.
func (x *sets) collect(removed func(id string)) {
	for _, id := range sortedKeys(x.idle) {
		s := x.idle[id]
		if s.live {
			x.stop(s)
			removed(id)
		}
		delete(x.byID, id)
		delete(x.fresh, id)
		delete(x.dirty, id)
	}
	clear(x.idle)
}

// maxScratch bounds the space kept after a large set.
const maxScratch = 1 << 17

// start begins to follow a set and returns its members as distinct texts in a stable order.
func (x *sets) start(s *ipset) []string {
	s.live = true
	if s.sel == nil {
		return textsOf(x.services.start(s))
	}
	s.handle = x.handles.Assign()
	for int(s.handle) >= len(x.byHandle) {
		x.byHandle = append(x.byHandle, nil)
	}
	x.byHandle[s.handle] = s
	list := memberList{v4: x.scratch.v4[:0], rest: x.scratch.rest[:0], buf: x.scratch.buf}
	x.index.AddSelector(s.handle, s.sel, func(h uint32) {
		c := &x.contents[h]
		if c.one != 0 && s.port == "" && !x.shared[h] { // nearly always
			list.v4 = append(list.v4, c.one)
			return
		}
		// Only items reported before count as holders, so the first item that has a member lists it.
		c.each(s, func(m member) {
			if !x.heldByOther(h, s, m, true) {
				list.addMember(m)
			}
		})
	})
	texts := list.texts()
	if cap(list.v4)+cap(list.rest) <= maxScratch {
		x.scratch = list
	}
	return texts
}

func (x *sets) stop(s *ipset) {
	s.live = false
	if s.sel == nil {
		x.services.stop(s)
		return
	}
	x.index.DropSelector(s.handle, func(uint32) {})
	x.byHandle[s.handle] = nil
	x.handles.GiveBack(s.handle)
}

func ipsetUpdate(s *ipset, members []string) *felix.ToDataplane {
	u := &felix.IPSetUpdate{Id: s.id, Type: s.kind, Members: members}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetUpdate{IpsetUpdate: u}}
}

func ipsetDelta(s *ipset) *felix.ToDataplane {
	var added, removed memberList
	for m, plus := range s.delta {
		if plus {
			added.addMember(m)
		} else {
			removed.addMember(m)
		}
	}
	d := &felix.IPSetDeltaUpdate{Id: s.id, AddedMembers: added.texts(), RemovedMembers: removed.texts()}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}}
}

func ipsetRemove(id string) *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetRemove{IpsetRemove: &felix.IPSetRemove{Id: id}}}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
