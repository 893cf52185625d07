package drain

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp/draw"
)

const (
	probes    = 12   // are added at least, as far as VPP has room
	firstPort = 1000 // of pads of adopted mappings; larger than the number of any slot
)

// older are the pads of a mapping that an agent without draining made.
var older = [2]Local{{Addr: [4]byte{192, 0, 2, 1}, Port: 1}, {Addr: [4]byte{192, 0, 2, 2}, Port: 1}}

// adopted reports that VPP may have free slots in a layout. Its first local is a pad whose port is the number of no slot, and which gives its place to no
// backend.
func (l Layout) adopted() bool { return len(l) > 0 && l[0].isPad() && l[0].Port >= firstPort }

// Adopt returns the requests after which a dump shows a layout of a mapping in which VPP may have free slots: one that an agent without
// draining made, or one that lost a local in the middle of a change. The slot of a local that is added is not known then, but it does not matter
// for pads as long as no pad has a weight. The dump shows where they are. From then on every change replaces a local in its slot.
//
// The order of the locals may be unknown if no pad has a weight, except that of the first. more is how many backends will be added. False: no such
// requests are known.
func Adopt(locals []Local, more int) (groups [][]Request, ok bool) {
	l := slices.Clone(Layout(locals))
	if len(l) == 0 || !l[0].isPad() && l[0] != older[0] {
		return nil, false
	}
	p := newPlanner(l, Goal{})
	if p == nil {
		return nil, false
	}
	p.ports = l.unusedPorts(len(l))
	if !p.reopenAll() {
		return nil, false
	}
	l = p.list
	var m move
	for i, x := range l {
		if i == 0 && !l.adopted() || slices.Contains(older[:], x) {
			m = append(m, edit{i, Local{Addr: draw.PadAddr, Port: p.ports[i]}, 0})
		}
	}
	if p.judge(m) == refused {
		return nil, false
	}
	p.do(m)
	var added []Request
	ports := p.list.unusedPorts(draw.Most)
	for i := range min(max(probes, 3*more), draw.Most-len(l)) {
		added = append(added, Request{true, Local{Addr: draw.PadAddr, Port: ports[i]}})
	}
	if len(added) > 0 {
		p.plan.Groups = append(p.plan.Groups, added)
	}
	return p.plan.Groups, true
}

// Lacks reports that a layout of Adopt has too few pads for a plan: that the plan may find more if Adopt adds some.
func (l Layout) Lacks(plan Plan, found bool) bool {
	n := len(l)
	for n > 0 && l.unused(n-1) {
		n--
	}
	return l.adopted() && l.hasRoom() && (!found || plan.Squeezed || len(plan.Lost) > 0 && len(l)-n < morePads)
}

// hasRoom reports that Adopt can add pads.
func (l Layout) hasRoom() bool { return len(l) <= draw.Most-probes }

// portsOfPads are the ports of the pads of an adopted layout, by slot: those that they have, and unused ones where backends are. nil: the layout
// is not adopted.
func (l Layout) portsOfPads() []uint16 {
	if !l.adopted() {
		return nil
	}
	ports := l.unusedPorts(len(l))
	for i, x := range l {
		if x.isPad() {
			ports[i] = x.Port
		}
	}
	return ports
}

// unusedPorts returns n ports from firstPort that no pad has.
func (l Layout) unusedPorts(n int) (ports []uint16) {
	used := map[uint16]bool{}
	for _, x := range l {
		used[x.Port] = used[x.Port] || x.isPad()
	}
	for port := uint16(firstPort); len(ports) < n; port++ {
		if !used[port] {
			ports = append(ports, port)
		}
	}
	return ports
}
