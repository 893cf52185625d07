package change

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
)

// end is one end of the connections of a row: pairs, and addresses outside.
type end struct {
	pairs []*pair
	hosts []space.Addresses
}

// parts are the values of one field that lead to the same headers.
type parts struct {
	list []space.Addresses
	rest space.Set
}

// rows divides a set into products: every From connects to every To by all Ports. The set was allowed on one side alone.
func (c *comparison) rows(set space.Set, side int) []Row {
	rows := []Row{}
	known := map[string]int{} // what a row says, but for its families → its index
	for _, from := range group(space.BySource(c.space, set)) {
		for _, to := range group(space.ByDestination(c.space, from.rest)) {
			row := c.row(set, from, to, side)
			key := row.text()
			if at, again := known[key]; again {
				rows[at].Families = slices.Compact(append(rows[at].Families, row.Families...))
				continue
			}
			known[key] = len(rows)
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, compareRows)
	return rows
}

// group joins parts with the same rest, in the order of their first addresses.
func group(list []space.Addresses) (out []parts) {
	at := map[space.Set]int{}
	for _, a := range list {
		i, known := at[a.Rest]
		if !known {
			i = len(out)
			at[a.Rest] = i
			out = append(out, parts{rest: a.Rest})
		}
		out[i].list = append(out[i].list, a)
	}
	return out
}

// text is what a row says, but for its families.
func (r *Row) text() string {
	var b strings.Builder
	for _, groups := range [][]Group{r.From, r.To} {
		for _, g := range groups {
			b.WriteString(g.Name + " " + g.Only + " " + strings.Join(g.Pods, " ") + "\n")
		}
		b.WriteString("\n")
	}
	return b.String() + r.Ports
}

func (c *comparison) row(set space.Set, from, to parts, side int) Row {
	s := c.space
	src, dst := c.endOf(from.list), c.endOf(to.list)
	family := "IPv4"
	if from.list[0].First.Is6() {
		family = "IPv6"
	}
	r := Row{From: c.groups(src, false, side), To: c.groups(dst, true, side), Families: []string{family}}
	r.Ports, r.Protocols = c.portsOf(to.rest)
	one := s.Intersect(set, s.Intersect(c.within(from.list, false), c.within(to.list, true)))
	h := c.clusters[side].Usual(one)
	r.Before, r.After = c.example(h, 0), c.example(h, 1)
	return r
}

// within is the headers from, or to, one address of each kind: those of pairs, and those outside.
func (c *comparison) within(list []space.Addresses, destination bool) space.Set {
	var nets []netip.Prefix
	for _, a := range list {
		nets = append(nets, cidrs(a.First, a.Last)...)
	}
	if destination {
		return c.space.Destinations(nets...)
	}
	return c.space.Sources(nets...)
}

// endOf divides addresses into those of pairs and others.
func (c *comparison) endOf(list []space.Addresses) (e end) {
	for _, a := range list {
		if c.byAddr[a.First] == nil {
			e.hosts = append(e.hosts, a)
			continue
		}
		at, _ := slices.BinarySearchFunc(c.sorted, a.First, netip.Addr.Compare)
		for ; at < len(c.sorted) && !a.Last.Less(c.sorted[at]); at++ {
			if p := c.byAddr[c.sorted[at]]; !slices.Contains(e.pairs, p) {
				e.pairs = append(e.pairs, p)
			}
		}
	}
	return e
}

// example describes a connection on one side; nil: a pod of it is not there.
func (c *comparison) example(h space.Header, side int) *intent.Example {
	var members [2]*class.Member
	from, to := c.byAddr[h.Src], c.byAddr[h.Dst]
	for i, a := range []*netip.Addr{&h.Src, &h.Dst} {
		p := c.byAddr[*a]
		if p == nil {
			continue
		}
		at := 0
		if i == 1 && from == to && len(p.slots) > 1 {
			at = 1
		}
		index := p.at[*a][side]
		if members[i] = p.slots[at].members[side]; members[i] == nil || index < 0 {
			return nil
		}
		*a = p.class[side].Addrs()[index]
	}
	if members[0] != nil && members[0] == members[1] {
		return nil // one pod takes the places of two
	}
	return c.clusters[side].Describe(h, members[0], members[1])
}
