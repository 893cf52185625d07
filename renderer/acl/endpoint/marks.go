package endpoint

import "net/netip"

// Marks are what changed, and so what later stages have to do again. A stage removes the marks that it has worked off.
type Marks struct {
	Facts   bool // addresses, interfaces or views of the node changed
	Places  bool // locations of endpoints changed
	Outer   bool // outer addresses changed, or what depends on them
	Hosts   bool // rules of host endpoints changed
	Senders bool // endpoints of interfaces changed, or source checks
	Leaving bool // lists of interfaces that are no pod's have to be made again

	Lists   map[*Iface]struct{}       // interfaces whose lists have to be made again
	Moved   map[*Iface]struct{}       // interfaces whose addresses changed
	Stale   map[*Program]struct{}     // programs to be flattened
	Changed map[*Program]struct{}     // programs whose steps or sources changed
	Members map[string][]netip.Prefix // addresses that joined or left a set
}

func newMarks() Marks {
	return Marks{
		Lists: map[*Iface]struct{}{}, Moved: map[*Iface]struct{}{}, Stale: map[*Program]struct{}{}, Changed: map[*Program]struct{}{},
		Members: map[string][]netip.Prefix{},
	}
}

// Relist marks the lists of an interface.
func (m *Marks) Relist(i *Iface) { m.Lists[i] = struct{}{} }

// RelistUsers marks the lists of the interfaces that have a program.
func (m *Marks) RelistUsers(p *Program) {
	for i := range p.Users {
		m.Relist(i)
	}
}

// RelistAll marks the lists of all interfaces.
func (g *Pods) RelistAll() {
	for _, i := range g.Ifaces {
		g.Relist(i)
	}
}

// RelistEgress marks the lists of the interfaces that have a program for egress.
func (g *Pods) RelistEgress() {
	for _, i := range g.Ifaces {
		if i.Progs[1] != nil {
			g.Relist(i)
		}
	}
}

// Evaluated removes the marks of the evaluation where packets leave.
func (m *Marks) Evaluated() {
	clear(m.Changed)
	clear(m.Moved)
	clear(m.Members)
}
