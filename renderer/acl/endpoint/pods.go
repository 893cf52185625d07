package endpoint

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// New returns pods without any endpoint.
func New(w World) *Pods {
	return &Pods{
		World: w, Marks: newMarks(), Ifaces: map[string]*Iface{}, Programs: map[string]*Program{}, workloads: map[ID]*Workload{},
		ofPolicy: index.Of[policy.ID, *Program]{}, ofProfile: index.Of[string, *Program]{}, ofSegment: index.Of[*table.Segment, *Program]{},
	}
}

// PutWorkload adds or replaces an endpoint.
func (g *Pods) PutWorkload(w *Workload) { g.workloads[w.ID], g.Places = w, true }

// RemoveWorkload removes an endpoint.
func (g *Pods) RemoveWorkload(id ID) {
	delete(g.workloads, id)
	g.Places = true
}

// Locate finds the interfaces, their endpoints and programs. It returns the interfaces that exist no more.
func (g *Pods) Locate() (gone []*Iface) {
	now := g.located()
	for name, old := range g.Ifaces {
		if now[name] == nil {
			g.assignPrograms(old, [2]*policy.Spec{})
			delete(g.Ifaces, name)
			delete(g.Lists, old)
			gone = append(gone, old)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		i, n := g.Ifaces[name], now[name]
		if i == nil {
			i = &Iface{Name: name}
			g.Ifaces[name] = i
			g.Relist(i)
		}
		if g.Facts || !slices.Equal(i.Addrs, n.Addrs) {
			g.Moved[i] = struct{}{}
			g.sourcesChanged(i.Progs[1])
		}
		if g.Facts || !slices.Equal(i.Addrs, n.Addrs) || !slices.Equal(i.Work, n.Work) {
			g.Relist(i)
		}
		if !slices.Equal(i.Work, n.Work) {
			g.Senders = true
		}
		i.Addrs, i.Work = n.Addrs, n.Work
		g.assignPrograms(i, i.specs())
	}
	if g.bytes != g.Node.ByteMatch6 {
		g.bytes = g.Node.ByteMatch6
		for _, p := range g.Programs {
			g.Stale[p] = struct{}{}
		}
	}
	g.findServed()
	return gone
}

// located returns the interfaces of local pods, with the endpoints that have one of their addresses.
func (g *Pods) located() map[string]*Iface {
	out := map[string]*Iface{}
	for a, name := range g.Node.Interfaces {
		if out[name] == nil {
			out[name] = &Iface{Name: name}
		}
		out[name].Addrs = append(out[name].Addrs, a)
	}
	for _, name := range g.Node.Isolated {
		if out[name] == nil {
			out[name] = &Iface{Name: name}
		}
	}
	for _, w := range g.workloads {
		for _, a := range w.addrs {
			if i := out[g.Node.Interfaces[a]]; i != nil && !slices.Contains(i.Work, w) {
				i.Work = append(i.Work, w)
			}
		}
	}
	for _, i := range out {
		for _, w := range i.Work {
			i.Addrs = append(i.Addrs, w.addrs...)
		}
		slices.SortFunc(i.Addrs, netip.Addr.Compare)
		i.Addrs = slices.Compact(i.Addrs)
		slices.SortFunc(i.Work, func(a, b *Workload) int { return a.ID.Compare(b.ID) })
	}
	return out
}

// specs returns the specs of the interface's endpoint. While an address belongs to two pods at once (one ends, the other has
// begun), their specs have to agree; otherwise the pod of a packet is unknown.
func (i *Iface) specs() [2]*policy.Spec {
	var out [2]*policy.Spec
	for d := range out {
		for _, w := range i.Work {
			if s := &w.specs[d]; out[d] != nil && out[d].Key() != s.Key() {
				return [2]*policy.Spec{}
			}
			out[d] = &w.specs[d]
		}
	}
	return out
}

// assignPrograms sets the programs of an interface to those of specs; nil: none.
func (g *Pods) assignPrograms(i *Iface, specs [2]*policy.Spec) {
	for d, s := range specs {
		old := i.Progs[d]
		key := ""
		if s != nil {
			key = s.Key()
		}
		if old != nil && old.Key == key || old == nil && s == nil {
			continue
		}
		g.Relist(i)
		i.Progs[d] = nil
		if s != nil {
			i.Progs[d] = g.programOf(key, s)
			i.Progs[d].Users[i] = struct{}{}
			g.sourcesChanged(i.Progs[d])
		}
		if old != nil {
			g.sourcesChanged(old)
			delete(old.Users, i)
			g.left = append(g.left, old)
		}
	}
}

// servedBy returns the ports that an interface's pod serves, according to the node and the policies that apply to the pod.
func (g *Pods) servedBy(i *Iface) *law.Ports {
	var spans [2][]match.Span
	for _, s := range g.Node.Served {
		if slices.Contains(i.Addrs, s.Addr) {
			k := match.InOut(s.Proto == match.UDP)
			spans[k] = append(spans[k], match.Span{Lo: s.First, Hi: s.Last})
		}
	}
	for _, w := range i.Work {
		tcp, udp := g.Book.Served(&w.specs[0])
		spans[0], spans[1] = append(spans[0], tcp...), append(spans[1], udp...)
	}
	return law.NewPorts(spans[0], spans[1])
}

// findServed updates the served ports of interfaces.
func (g *Pods) findServed() {
	for _, i := range g.Ifaces {
		if now := g.servedBy(i); now.Key() != i.Served.Key() {
			i.Served = now
			g.Relist(i)
			g.Leaving, g.Senders = true, true
		}
	}
}

// At returns the interface with an address; nil: no pod's.
func (g *Pods) At(a netip.Addr) *Iface { return g.Ifaces[g.Node.Interfaces[a]] }

// Sorted returns interfaces by name.
func Sorted(m map[*Iface]struct{}) []*Iface {
	return slices.SortedFunc(maps.Keys(m), func(a, b *Iface) int { return cmp.Compare(a.Name, b.Name) })
}
