package felix

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// ledger is all a driver is to know, and what of it this driver was not told yet. However slow the driver is, it holds every
// thing once: what changes twice before it is told is told once, as it is then.
type ledger struct {
	things     map[thingKey]*thing
	sets       map[string]*setThing
	dirty      []thingKey // things to tell, each once; sets have kind kindSet
	inSync     bool       // the calculation has told all there is
	toldInSync bool       // and the driver knows
}

// thingKey names a thing among those of all kinds.
type thingKey struct {
	kind    thingKind
	a, b, c string
}

func (k thingKey) compare(o thingKey) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.a, o.a), cmp.Compare(k.b, o.b), cmp.Compare(k.c, o.c))
}

// thing is anything but a set.
type thing struct {
	update *pb.ToDataplane // as it is; nil: it is gone
	remove *pb.ToDataplane // how to say that it is gone
	told   *pb.ToDataplane // what the driver knows of it; nil: nothing
	dirty  bool            // it was not told since it changed
}

// setThing is a set of addresses.
type setThing struct {
	update  *pb.IPSetUpdate // as it was told last as a whole; nil: it is gone
	members map[string]bool // as they are now, once a delta came; nil: those of update
	told    bool
	dirty   bool
	whole   bool // it cannot be told as a delta
	// since it was told: true came, false went
	delta map[string]bool
}

func newLedger() *ledger {
	return &ledger{things: map[thingKey]*thing{}, sets: map[string]*setThing{}}
}

// take notes a message; it must not be changed afterwards.
func (l *ledger) take(m *pb.ToDataplane) {
	switch p := m.Payload.(type) {
	case *pb.ToDataplane_InSync:
		l.inSync = true
	case *pb.ToDataplane_IpsetUpdate:
		s := l.set(p.IpsetUpdate.Id)
		s.update, s.members, s.delta, s.whole = p.IpsetUpdate, nil, nil, true
	case *pb.ToDataplane_IpsetDeltaUpdate:
		if s := l.sets[p.IpsetDeltaUpdate.Id]; s != nil && s.update != nil {
			l.set(p.IpsetDeltaUpdate.Id).change(p.IpsetDeltaUpdate)
		}
	case *pb.ToDataplane_IpsetRemove:
		s := l.set(p.IpsetRemove.Id)
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

// set is the set of that id, which changes now.
func (l *ledger) set(id string) *setThing {
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

// change makes members come and go.
func (s *setThing) change(d *pb.IPSetDeltaUpdate) {
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
	if len(s.delta) > len(s.members) { // then the whole is shorter
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
		delete(s.delta, member) // there and back
		return
	}
	s.delta[member] = comes
}

// message is what brings a driver up to date; nil: nothing.
func (s *setThing) message(id string) *pb.ToDataplane {
	switch {
	case s.update == nil && s.told:
		return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetRemove{IpsetRemove: &pb.IPSetRemove{Id: id}}}
	case s.update == nil:
		return nil
	case s.whole || !s.told:
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

// restart says that the driver is another one, which knows nothing.
func (l *ledger) restart() {
	l.toldInSync, l.dirty = false, nil
	for key, t := range l.things {
		if t.update == nil {
			delete(l.things, key)
			continue
		}
		t.told, t.dirty = nil, true
		l.dirty = append(l.dirty, key)
	}
	for id, s := range l.sets {
		if s.update == nil {
			delete(l.sets, id)
			continue
		}
		s.told, s.dirty, s.whole, s.delta = false, true, true, nil
		l.dirty = append(l.dirty, thingKey{kind: kindSet, a: id})
	}
	slices.SortFunc(l.dirty, thingKey.compare)
}

// behind is how many things the driver was not told as they are.
func (l *ledger) behind() int { return len(l.dirty) }

// due tells whether a round would say something.
func (l *ledger) due() bool {
	if !l.inSync {
		t := l.things[thingKey{kind: kindConfig}]
		return t != nil && t.dirty
	}
	return len(l.dirty) > 0 || !l.toldInSync
}

// round returns what the driver was not told, in an order in which everything a message refers to is there before: what comes,
// each kind after those it names, then what goes, the other way round. All of it counts as told. Before all is known only the
// configuration is told.
func (l *ledger) round() []*pb.ToDataplane {
	if !l.inSync {
		return l.early()
	}
	var steps [lastStep][]*pb.ToDataplane
	n := 0
	for _, key := range l.dirty {
		m, gone := l.tell(key)
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
	if !l.toldInSync {
		l.toldInSync = true
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
	if m, _ := l.tell(key); m != nil {
		return []*pb.ToDataplane{m}
	}
	return nil
}

// tell is the message that brings the driver up to date with one thing, which counts as told then; nil: there is none.
func (l *ledger) tell(key thingKey) (m *pb.ToDataplane, gone bool) {
	if key.kind == kindSet {
		s := l.sets[key.a]
		m, gone = s.message(key.a), s.update == nil
		s.told, s.dirty, s.whole, s.delta = true, false, false, nil
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
		if t.told != nil {
			m = t.remove
		}
		return m, true
	case t.told != nil && proto.Equal(t.told, t.update): // there and back
		return nil, false
	}
	t.told = t.update
	return t.update, false
}
