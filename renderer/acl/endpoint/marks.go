package endpoint

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
