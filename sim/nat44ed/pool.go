package nat44ed

import (
	"encoding/binary"
	"iter"
	"net/netip"
)

// pool is vppinfra's pool: indices are stable, freed slots keep their content and are used again, last freed first.
type pool[T any] struct {
	elts []T
	used []bool
	free []uint32
}

// takeSlot returns a slot; the caller overwrites its old content.
func (p *pool[T]) takeSlot() uint32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		p.used[i] = true
		return i
	}
	var zero T
	p.elts = append(p.elts, zero)
	p.used = append(p.used, true)
	return uint32(len(p.elts) - 1)
}

func (p *pool[T]) freeSlot(i uint32) {
	p.used[i] = false
	p.free = append(p.free, i)
}

func (p *pool[T]) slotAt(i uint32) *T { return &p.elts[i] }

func (p *pool[T]) len() int { return len(p.elts) - len(p.free) }

// usedSlots yields the used indices in order, without slots that are freed during the walk.
func (p *pool[T]) usedSlots() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := range p.elts {
			if p.used[i] && !yield(uint32(i)) {
				return
			}
		}
	}
}

func (p *pool[T]) copyUsed() []T {
	out := make([]T, 0, p.len())
	for i := range p.usedSlots() {
		out = append(out, p.elts[i])
	}
	return out
}

// addrNum returns the address as a number, first byte highest; 0 for other families.
func addrNum(a netip.Addr) uint32 {
	if !a.Is4() && !a.Is4In6() {
		return 0
	}
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func numAddr(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func maskOf(bits int) uint32 {
	if bits <= 0 {
		return 0
	}
	return ^uint32(0) << (32 - bits)
}
