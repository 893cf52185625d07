package change

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
)

// tally is the selected slots of a workload or a namespace, and the number of all.
type tally struct {
	slots []*slot
	all   int
}

// groups names an end: all pods of the cluster, of a namespace, of a workload, or single pods; all that is outside, or ranges of addresses.
func (c *comparison) groups(e end, destination bool, side int) (out []Group) {
	namespaces, workloads := c.countSlots(e, side)
	every := &tally{}
	for _, t := range namespaces {
		every.slots, every.all = append(every.slots, t.slots...), every.all+t.all
	}
	switch {
	case len(every.slots) == 0:
	case len(every.slots) == every.all && len(namespaces) > 1:
		out = append(out, every.group("every pod", true))
	default:
		for _, name := range slices.Sorted(maps.Keys(namespaces)) {
			if t := namespaces[name]; len(t.slots) == t.all {
				out = append(out, t.group("ns:"+name, true))
			} else if len(t.slots) > 0 {
				out = append(out, partsOf(name, workloads)...)
			}
		}
	}
	return append(out, c.hostGroups(e.hosts, destination)...)
}

// partsOf names the selected workloads of a namespace, and the selected pods of others.
func partsOf(namespace string, workloads map[string]*tally) (out []Group) {
	for _, name := range slices.Sorted(maps.Keys(workloads)) {
		t := workloads[name]
		switch {
		case !strings.HasPrefix(name, namespace+"/") || len(t.slots) == 0:
		case len(t.slots) == t.all && t.all > 1:
			out = append(out, t.group(name, false))
		default:
			for _, one := range t.slots {
				out = append(out, (&tally{slots: []*slot{one}}).group(one.name, true))
			}
		}
	}
	return out
}

// group makes a group of the selected slots. If defined, the name says which pods it has.
func (t *tally) group(name string, defined bool) Group {
	g := Group{Name: name, Only: t.slots[0].only}
	for _, s := range t.slots {
		if s.only != g.Only {
			g.Only = ""
		}
		if !defined {
			g.Pods = append(g.Pods, s.name)
		}
	}
	slices.Sort(g.Pods)
	return g
}

// countSlots counts the slots of a side by namespace and by workload.
func (c *comparison) countSlots(e end, side int) (namespaces, workloads map[string]*tally) {
	namespaces, workloads = map[string]*tally{}, map[string]*tally{}
	at := func(m map[string]*tally, name string) *tally {
		if m[name] == nil {
			m[name] = &tally{}
		}
		return m[name]
	}
	selected := map[*pair]bool{}
	for _, p := range e.pairs {
		selected[p] = true
	}
	for _, p := range c.pairs {
		for i := range p.slots {
			s := &p.slots[i]
			m := s.members[side]
			if m == nil {
				continue
			}
			for _, t := range []*tally{at(namespaces, m.ID.Namespace), at(workloads, m.ID.Namespace+"/"+class.Workload(m.Pod.Pod))} {
				if t.all++; selected[p] {
					t.slots = append(t.slots, s)
				}
			}
		}
	}
	return namespaces, workloads
}

// hostGroups names addresses.
func (c *comparison) hostGroups(hosts []space.Addresses, destination bool) (out []Group) {
	if len(hosts) == 0 {
		return nil
	}
	all := c.outside[0]
	divide := space.BySource
	if destination {
		all, divide = c.outside[1], space.ByDestination
	}
	family := c.space.Box(space.All4())
	if hosts[0].First.Is6() {
		family = c.space.Box(space.All6())
	}
	except := divide(c.space, c.space.Minus(c.space.Intersect(all, family), c.within(hosts, destination)))
	if len(except) < len(hosts) {
		return []Group{{Name: strings.TrimSuffix("outside except "+rangesText(except), " except ")}}
	}
	for _, a := range hosts {
		out = append(out, Group{Name: rangesText([]space.Addresses{a})})
	}
	return out
}

// rangesText is "198.51.100.0/24, 203.0.113.7-203.0.113.9".
func rangesText(list []space.Addresses) string {
	var texts []string
	for _, a := range list {
		if nets := cidrs(a.First, a.Last); len(nets) == 1 {
			texts = append(texts, nets[0].String())
		} else {
			texts = append(texts, fmt.Sprintf("%s-%s", a.First, a.Last))
		}
	}
	return strings.Join(texts, ", ")
}

// cidrs are the fewest prefixes with the addresses of a range.
func cidrs(first, last netip.Addr) (list []netip.Prefix) {
	for {
		bits := first.BitLen()
		for bits > 0 {
			wider := netip.PrefixFrom(first, bits-1)
			if wider.Masked().Addr() != first || last.Less(lastOf(wider)) {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(first, bits)
		list = append(list, p)
		if end := lastOf(p); end == last {
			return list
		} else {
			first = end.Next()
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(bytes) // 4 or 16 bytes are an address
	return a
}

// mostGroups is how many groups of one end are shown.
const mostGroups = 6

// GroupsText returns groups in words: "ns:shop (2 pods), outside".
func GroupsText(list []Group) string {
	var texts []string
	for i, g := range list {
		if i == mostGroups {
			texts = append(texts, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		text := g.Name
		switch n := len(g.Pods); {
		case n == 1:
			text += " (1 pod)"
		case n > 1:
			text += fmt.Sprintf(" (%d pods)", n)
		}
		if g.Only != "" {
			text += " (" + g.Only + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
