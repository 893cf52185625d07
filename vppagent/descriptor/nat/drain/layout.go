package drain

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp/draw"
)

// Local is a local of a load-balanced mapping: a backend or a pad.
type Local struct {
	Addr   [4]byte
	Port   uint16
	Weight uint8
	VRF    uint32
}

// same reports that VPP takes both for the same local.
func (l Local) same(o Local) bool { return l.Addr == o.Addr && l.Port == o.Port && l.VRF == o.VRF }

// Discard is the backend of a mapping that has no other: its packets are lost.
var Discard = Local{Addr: [4]byte{192, 0, 2, 3}, Port: 1, Weight: 1}

// padAt is the pad of a slot. Its port is the number of the slot, from 1, so that a dump shows whether VPP has a free slot in front of it.
func padAt(slot int, weight uint8) Local {
	return Local{Addr: draw.PadAddr, Port: uint16(slot + 1), Weight: weight}
}

func (l Local) isPad() bool { return l.Addr == draw.PadAddr }

// Layout are the locals of a mapping in the order of their slots. VPP has no free slot between them: every change of one replaces it in its
// slot, adds one behind the last, or removes the last. One of Adopt may have free slots: nothing is added to it.
type Layout []Local

// New returns the layout of a new mapping: every backend gets its weight, and as many pads are between backends as VPP has room for.
//
//	pad pad  pad b₁ pad  pad b₂ pad  …
func New(backends []Local) Layout {
	return AppendNew(make(Layout, 0, min(2+3*max(1, len(backends)), draw.Most)), backends)
}

// AppendNew is New in a slice that exists, which must be empty.
func AppendNew(l Layout, backends []Local) Layout {
	if len(backends) == 0 {
		backends = []Local{Discard}
	}
	n := len(backends)
	room := draw.Most - 2 - n
	before := room >= n-1 // the two pads are in front of the first backend
	behind := room >= 2*n
	l = append(l, padAt(0, 0), padAt(1, 0))
	for i, b := range backends {
		if before && (i > 0 || room >= n) {
			l = append(l, padAt(len(l), 0))
		}
		l = append(l, b)
		if behind {
			l = append(l, padAt(len(l), 0))
		}
	}
	return l
}

// Read returns the layout that VPP shows. False: this package did not make it, or VPP has a free slot in it, so where VPP puts the next local
// is not known. Adopt makes a layout of it.
func Read(dumped []Local) (Layout, bool) {
	ours := Layout(dumped).adopted()
	if ours {
		return Layout(dumped), true
	}
	for i, l := range dumped {
		if l.isPad() && int(l.Port) != i+1 {
			return nil, false
		}
		ours = ours || l.isPad()
	}
	return Layout(dumped), ours
}

// Split returns the backends that get new flows, and those that get none. Discard is not among them. False: VPP gives a pad something, or ends.
func (l Layout) Split() (taking, drained []Local, ok bool) {
	shares, ok := l.shares()
	for i, b := range l {
		switch {
		case b.isPad(), b == Discard && shares[i] > 0:
		case shares[i] == 0:
			drained = append(drained, b)
		default:
			taking = append(taking, b)
		}
	}
	return taking, drained, ok
}

// shares returns how many of VPP's numbers choose each local. False: VPP gives a pad something, or ends.
func (l Layout) shares() (shares []int, ok bool) {
	var room [draw.Most + 1]uint8
	out := draw.Of(nil, l.weights(room[:]))
	ok = out.Total > 0
	for i, b := range l {
		ok = ok && (!b.isPad() || out.Shares[i] == 0)
	}
	return out.Shares, ok
}

// weights returns the weights of all locals, in room if they fit.
func (l Layout) weights(room []uint8) []uint8 {
	out := room[:0]
	for _, x := range l {
		out = append(out, x.Weight)
	}
	return out
}

// find returns the slot of a backend, -1 if it has none.
func (l Layout) find(b Local) int { return slices.IndexFunc(l, b.same) }
