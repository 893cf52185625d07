package calc

// handles assigns small numbers and reuses those that are given back.
type handles struct {
	next uint32
	free []uint32
}

func (h *handles) assign() uint32 {
	if n := len(h.free); n > 0 {
		id := h.free[n-1]
		h.free = h.free[:n-1]
		return id
	}
	h.next++
	return h.next - 1
}

func (h *handles) giveBack(id uint32) { h.free = append(h.free, id) }
