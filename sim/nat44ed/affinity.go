package nat44ed

import "time"

type affinityKey struct {
	client, service uint32
	port            uint16
	proto           uint8
}

// affinityRecord binds a client to a slot of the mapping's backends, whatever backend is in the slot. VPP keeps 8 bits of the slot.
type affinityRecord struct {
	slot    uint8
	holders uint32 // sessions; the time to live begins when the last one ends
	sticky  uint32 // seconds
	expire  time.Duration
	owner   uint32 // the list of the mapping it was made for
}

func (e *Engine) setAffinity(k affinityKey, r *affinityRecord) {
	if e.recording {
		old := e.affinity[k]
		e.undo(func() {
			if old == nil {
				delete(e.affinity, k)
			} else {
				e.affinity[k] = old
			}
		})
	}
	if r == nil {
		delete(e.affinity, k)
	} else {
		e.affinity[k] = r
	}
}

// affinityLock finds the client's slot and increments its holders. Packets that fail afterwards (no SYN, no port, too many sessions)
// never decrement them, so such a record never expires.
func (e *Engine) affinityLock(k affinityKey) (slot uint8, ok bool) {
	r := e.affinity[k]
	if r == nil {
		return 0, false
	}
	if r.holders == 0 && r.expire < e.now() {
		e.setAffinity(k, nil)
		return 0, false
	}
	held := *r
	held.holders++
	e.setAffinity(k, &held)
	return r.slot, true
}

func (e *Engine) affinityCreate(k affinityKey, slot uint32, sticky, owner uint32) {
	if e.affinity[k] != nil {
		return
	}
	e.setAffinity(k, &affinityRecord{slot: uint8(slot), holders: 1, sticky: sticky, owner: owner})
}

func (e *Engine) affinityUnlock(k affinityKey) {
	r := e.affinity[k]
	if r == nil {
		return
	}
	left := *r
	left.holders--
	if left.holders == 0 {
		left.expire = time.Duration(left.sticky)*time.Second + e.now()
	}
	e.setAffinity(k, &left)
}

// affinityFlush removes all clients of a mapping, when the mapping is deleted and at no other time.
func (e *Engine) affinityFlush(owner uint32) {
	for k, r := range e.affinity {
		if r.owner == owner {
			e.setAffinity(k, nil)
		}
	}
}
