package classify

import (
	"maps"
	"slices"
)

// Set attaches tables to an existing interface, or detaches them; None skips a kind. It stops at the first kind with an error. An
// "add" also stops, with retval 0, at the first kind that has a table already, even another one: so does VPP.
func (e *Engine) Set(d Direction, swIf uint32, tables [Kinds]uint32, add bool) int32 {
	for k, i := range tables {
		have, is := e.attached[d][k][swIf]
		switch {
		case i == None:
			continue
		case e.table(i) == nil:
			return rvNoSuchTable
		}
		e.ever[d][k] = true
		switch {
		case !add && (!is || have != i):
			return rvNoSuchTable
		case add && is:
			return 0
		case add:
			e.attached[d][k][swIf], e.on[d][k][swIf] = i, true
		default:
			delete(e.attached[d][k], swIf)
			delete(e.on[d][k], swIf)
		}
	}
	return 0
}

// InterfaceDeleted disables the nodes. The attachments remain recorded, and apply to the next interface of that index.
func (e *Engine) InterfaceDeleted(swIf uint32) {
	for d := range directions {
		for k := range Kinds {
			delete(e.on[d][k], swIf)
		}
	}
}

// Attached returns the table that is recorded for an interface; None: none.
func (e *Engine) Attached(d Direction, k Kind, swIf uint32) uint32 {
	if i, is := e.attached[d][k][swIf]; is {
		return i
	}
	return None
}

// On reports whether the interface has the node. An interface that is younger than the attachment to its index does not have it.
func (e *Engine) On(d Direction, k Kind, swIf uint32) bool { return e.on[d][k][swIf] }

// Noted returns the indices of interfaces with recorded tables, deleted ones included.
func (e *Engine) Noted(d Direction, k Kind) []uint32 {
	return slices.Sorted(maps.Keys(e.attached[d][k]))
}

// Ever reports whether any request has attached a table of this kind: VPP's list exists from then on.
func (e *Engine) Ever(d Direction, k Kind) bool { return e.ever[d][k] }

// Check evaluates a packet at an interface that has the node. frame begins with the link header, the IP header is at byte ip.
func (e *Engine) Check(d Direction, k Kind, swIf uint32, frame []byte, ip int) Verdict {
	v := Verdict{Table: e.attached[d][k][swIf]}
	for ; ; v.Place++ {
		t := e.table(v.Table)
		if t == nil {
			panic(&Crash{trapTableGone})
		}
		if v.Place > len(e.tables) {
			panic(&Crash{trapRound})
		}
		if s := t.findSession(d, frame, ip); s != nil {
			s.Hits++
			v.Hit, v.Session, v.Pass = true, *s, s.Hit != 0
			return v
		}
		if t.Next == None {
			v.Pass = t.Miss != 0
			return v
		}
		v.Table = t.Next
	}
}

func (t *table) findSession(d Direction, frame []byte, ip int) *Session {
	at := int(t.Skip) * vector
	switch {
	case t.CurrentData:
		at += ip + int(t.Offset)
	case d == Output:
		at += ip
	}
	var data []byte
	switch {
	case at < 0:
		data = append(make([]byte, -at), frame...)
	case at < len(frame):
		data = frame[at:]
	}
	return t.sessions[t.under(data)]
}
