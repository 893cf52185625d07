package labelindex

// Handles assigns small numbers and reuses those that are given back.
type Handles struct {
	next uint32
	free []uint32
}

// Assign returns a number that is not in use.
func (h *Handles) Assign() uint32 {
	if n := len(h.free); n > 0 {
		id := h.free[n-1]
		h.free = h.free[:n-1]
		return id
	}
	h.next++
	return h.next - 1
}

// GiveBack ends the use of a number.
func (h *Handles) GiveBack(id uint32) { h.free = append(h.free, id) }
