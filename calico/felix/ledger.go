package felix

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// ledger holds the desired state of a driver, and which part of it this driver has not received. However slow the driver
// is, it holds every thing once: two changes before a round are sent as one, with the latest state.
type ledger struct {
	things     map[thingKey]*thing
	sets       map[string]*setThing
	dirty      []thingKey // things to send, each once; sets have kind kindSet
	inSync     bool       // the calculation has sent everything that exists
	sentInSync bool       // and the driver has received in_sync
}

// thing is any object but a set.
type thing struct {
	update *pb.ToDataplane // its latest update; nil: removed
	remove *pb.ToDataplane // the message that removes it
	sent   *pb.ToDataplane // the last update sent to the driver; nil: none
	dirty  bool            // changed since the last message
}

// setThing is a set of addresses.
type setThing struct {
	update  *pb.IPSetUpdate // its last full update; nil: removed
	members map[string]bool // current members, after the first delta; nil: those of update
	sent    bool
	dirty   bool
	whole   bool // a delta cannot express the change
	// changes since the last message: true added, false removed
	delta map[string]bool
}

func newLedger() *ledger {
	return &ledger{things: map[thingKey]*thing{}, sets: map[string]*setThing{}}
}

// recordMessage records a message, which must not change afterwards.
func (l *ledger) recordMessage(m *pb.ToDataplane) {
	switch p := m.Payload.(type) {
	case *pb.ToDataplane_InSync:
		l.inSync = true
	case *pb.ToDataplane_IpsetUpdate:
		s := l.changedSet(p.IpsetUpdate.Id)
		s.update, s.members, s.delta, s.whole = p.IpsetUpdate, nil, nil, true
	case *pb.ToDataplane_IpsetDeltaUpdate:
		if s := l.sets[p.IpsetDeltaUpdate.Id]; s != nil && s.update != nil {
			l.changedSet(p.IpsetDeltaUpdate.Id).applyDelta(p.IpsetDeltaUpdate)
		}
	case *pb.ToDataplane_IpsetRemove:
		s := l.changedSet(p.IpsetRemove.Id)
		s.update, s.members, s.delta = nil, nil, nil
	default:
		key, gone := classify(m)
		if key.kind == kindNone {
			return
		}
		t := l.things[key]
		if t == nil {
			t = &thing{}
			l.things[key] = t
		}
		if t.update = m; gone {
			t.update, t.remove = nil, m
		}
		if !t.dirty {
			t.dirty = true
			l.dirty = append(l.dirty, key)
		}
	}
}

// changedSet returns the set of that id, marked as changed.
func (l *ledger) changedSet(id string) *setThing {
	s := l.sets[id]
	if s == nil {
		s = &setThing{}
		l.sets[id] = s
	}
	if !s.dirty {
		s.dirty = true
		l.dirty = append(l.dirty, thingKey{kind: kindSet, a: id})
	}
	return s
}

// applyDelta applies a delta's additions and removals.
func (s *setThing) applyDelta(d *pb.IPSetDeltaUpdate) {
	if s.members == nil {
		s.members = make(map[string]bool, len(s.update.Members))
		for _, m := range s.update.Members {
			s.members[m] = true
		}
	}
	if s.delta == nil {
		s.delta = map[string]bool{}
	}
	for _, m := range d.AddedMembers {
		s.one(m, true)
	}
	for _, m := range d.RemovedMembers {
		s.one(m, false)
	}
	if len(s.delta) > len(s.members) { // the full update is shorter then
		s.delta, s.whole = nil, true
	}
}

func (s *setThing) one(member string, comes bool) {
	if s.members[member] == comes {
		return
	}
	if comes {
		s.members[member] = true
	} else {
		delete(s.members, member)
	}
	if s.whole {
		return
	}
	if was, changed := s.delta[member]; changed && was != comes {
		delete(s.delta, member) // the changes cancel out
		return
	}
	s.delta[member] = comes
}

// updateMessage returns the message that updates a driver; nil: none needed.
func (s *setThing) updateMessage(id string) *pb.ToDataplane {
	switch {
	case s.update == nil && s.sent:
		return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetRemove{IpsetRemove: &pb.IPSetRemove{Id: id}}}
	case s.update == nil:
		return nil
	case s.whole || !s.sent:
		if s.members != nil {
			s.update = &pb.IPSetUpdate{Id: id, Type: s.update.Type, Members: slices.Sorted(maps.Keys(s.members))}
		}
		return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetUpdate{IpsetUpdate: s.update}}
	case len(s.delta) == 0:
		return nil
	}
	d := &pb.IPSetDeltaUpdate{Id: id}
	for _, m := range slices.Sorted(maps.Keys(s.delta)) {
		if s.delta[m] {
			d.AddedMembers = append(d.AddedMembers, m)
		} else {
			d.RemovedMembers = append(d.RemovedMembers, m)
		}
	}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}}
}

// recordRestart records that a new driver has started, which knows nothing.
func (l *ledger) recordRestart() {
	l.sentInSync, l.dirty = false, nil
	for key, t := range l.things {
		if t.update == nil {
			delete(l.things, key)
			continue
		}
		t.sent, t.dirty = nil, true
		l.dirty = append(l.dirty, key)
	}
	for id, s := range l.sets {
		if s.update == nil {
			delete(l.sets, id)
			continue
		}
		s.sent, s.dirty, s.whole, s.delta = false, true, true, nil
		l.dirty = append(l.dirty, thingKey{kind: kindSet, a: id})
	}
	slices.SortFunc(l.dirty, thingKey.compare)
}

// countUnsent returns how many things the driver has not received in their latest state.
func (l *ledger) countUnsent() int { return len(l.dirty) }

// due reports whether a round would send anything.
func (l *ledger) due() bool {
	if !l.inSync {
		t := l.things[thingKey{kind: kindConfig}]
		return t != nil && t.dirty
	}
	return len(l.dirty) > 0 || !l.sentInSync
}

// round returns the messages that the driver lacks, and records them as sent. They are ordered so that everything a message
// refers to exists at that point: additions in the order of dependencies, then removals in reverse. Before in-sync it sends
// the configuration only.
func (l *ledger) round() []*pb.ToDataplane {
	if !l.inSync {
		return l.early()
	}
	var steps [lastStep][]*pb.ToDataplane
	n := 0
	for _, key := range l.dirty {
		m, gone := l.bringUpToDate(key)
		if m != nil {
			at := stepOf(key.kind, gone)
			steps[at] = append(steps[at], m)
			n++
		}
	}
	l.dirty = nil
	out := make([]*pb.ToDataplane, 0, n+1)
	for _, list := range steps {
		out = append(out, list...)
	}
	if !l.sentInSync {
		l.sentInSync = true
		out = append(out, &pb.ToDataplane{Payload: &pb.ToDataplane_InSync{InSync: &pb.InSync{}}})
	}
	return out
}

func (l *ledger) early() []*pb.ToDataplane {
	key := thingKey{kind: kindConfig}
	if !l.due() {
		return nil
	}
	l.dirty = slices.DeleteFunc(l.dirty, func(k thingKey) bool { return k == key })
	if m, _ := l.bringUpToDate(key); m != nil {
		return []*pb.ToDataplane{m}
	}
	return nil
}

// bringUpToDate returns the message that updates the driver about one thing, and records it as sent; nil: none needed.
func (l *ledger) bringUpToDate(key thingKey) (m *pb.ToDataplane, gone bool) {
	if key.kind == kindSet {
		s := l.sets[key.a]
		m, gone = s.updateMessage(key.a), s.update == nil
		s.sent, s.dirty, s.whole, s.delta = true, false, false, nil
		if gone {
			delete(l.sets, key.a)
		}
		return m, gone
	}
	t := l.things[key]
	t.dirty = false
	switch {
	case t.update == nil:
		delete(l.things, key)
		if t.sent != nil {
			m = t.remove
		}
		return m, true
	case t.sent != nil && proto.Equal(t.sent, t.update): // the changes cancel out
		return nil, false
	}
	t.sent = t.update
	return t.update, false
}
