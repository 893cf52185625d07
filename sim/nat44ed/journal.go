package nat44ed

// dynamic is the state that packets change, for Snapshot and Restore.
type dynamic struct {
	sessions pool[session]
	flows    map[tuple]uint32 // both flows of a session → its index
	lru      [lruCount]lruList
	vrfPairs []*vrfPair
	affinity map[affinityKey]*affinityRecord

	recording bool
	journal   []func()
	epoch     uint32 // changes with each snapshot and restore: a session is copied once per epoch
}

// Mark identifies a state for Restore. Marks nest: restoring one makes later ones invalid.
type Mark struct{ at int }

// Snapshot marks sessions, affinity and the state of VPP's random generator; from now on a journal records undo steps, so its cost
// is that of the changes made afterwards. Configuration is not part of it; of configuration changes that end sessions, Restore
// undoes the end of the sessions only.
func (e *Engine) Snapshot() Mark {
	e.recording = true
	e.epoch++
	return Mark{at: len(e.journal)}
}

// Restore returns to the state of the mark, which stays usable. It panics for a mark that Release or an earlier Restore made
// invalid.
func (e *Engine) Restore(m Mark) {
	if m.at > len(e.journal) {
		panic("nat44ed: restore of a mark that is gone")
	}
	for i := len(e.journal) - 1; i >= m.at; i-- {
		e.journal[i]()
		e.journal[i] = nil
	}
	e.journal = e.journal[:m.at]
	e.epoch++
}

// Release forgets all marks and keeps no journal until the next Snapshot.
func (e *Engine) Release() {
	e.recording = false
	e.journal = nil
	e.epoch++
}

func (e *Engine) undo(f func()) { e.journal = append(e.journal, f) }

// touch must precede a change of a session.
func (e *Engine) touch(i uint32) {
	s := e.sessions.slotAt(i)
	if !e.recording || s.epoch == e.epoch {
		return
	}
	old := *s
	s.epoch = e.epoch
	e.undo(func() { *e.sessions.slotAt(i) = old })
}

func (e *Engine) getSession() uint32 {
	if !e.recording {
		return e.sessions.takeSlot()
	}
	fresh := len(e.sessions.free) == 0
	i := e.sessions.takeSlot()
	e.undo(func() {
		if fresh {
			e.sessions.elts = e.sessions.elts[:i]
			e.sessions.used = e.sessions.used[:i]
			return
		}
		e.sessions.freeSlot(i)
	})
	return i
}

func (e *Engine) putSession(i uint32) {
	e.sessions.freeSlot(i)
	if e.recording {
		e.undo(func() { e.sessions.takeSlot() })
	}
}

func (e *Engine) setFlow(k tuple, i uint32) {
	if e.recording {
		old, had := e.flows[k]
		e.undo(func() {
			if had {
				e.flows[k] = old
			} else {
				delete(e.flows, k)
			}
		})
	}
	e.flows[k] = i
}

func (e *Engine) delFlow(k tuple) {
	old, had := e.flows[k]
	if !had {
		return
	}
	delete(e.flows, k)
	if e.recording {
		e.undo(func() { e.flows[k] = old })
	}
}

// clearDynamic drops the whole state, as plugin enable and disable do.
func (e *Engine) clearDynamic() {
	e.clearSessions()
	if e.recording {
		old := e.affinity
		e.undo(func() { e.affinity = old })
	}
	e.affinity = map[affinityKey]*affinityRecord{}
}

func (e *Engine) clearSessions() {
	if e.recording {
		sessions, flows, lru, pairs := e.sessions, e.flows, e.lru, e.vrfPairs
		e.undo(func() { e.sessions, e.flows, e.lru, e.vrfPairs = sessions, flows, lru, pairs })
	}
	e.sessions = pool[session]{}
	e.flows = map[tuple]uint32{}
	for i := range e.lru {
		e.lru[i] = lruList{head: None, tail: None}
	}
	e.vrfPairs = nil
	e.epoch++
}
