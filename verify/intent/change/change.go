// Package change turns two sets of objects into the new connections that policies allow in one of them alone.
//
//	old objects ─ classes ─ what policies allow ─┐ addresses of pods are replaced by those of pairs
//	new objects ─ classes ─ what policies allow ─┴▶ two sets of one space ─▶ opened, closed ─▶ rows: groups of pods, ports, an example
//
// A pair is pods of one workload in both sets of objects, and so their addresses and names do not matter.
//
// Invariant: a connection between a workload and a workload, or an address outside, is in a row if and only if policies allow it in one set of
// objects alone.
package change

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
)

// Report is what a change of objects opens and closes.
type Report struct {
	// Opened are connections that only the new objects allow, Closed those that only the old ones allow.
	Opened []Row `json:"opened"`
	Closed []Row `json:"closed"`
	// Unknown names pods whose policies cannot be evaluated. No row has connections that depend on these policies.
	Unknown []string `json:"notCompared,omitempty"`
	// Doubts has Unknown as fields.
	Doubts []Doubt `json:"notComparedPods,omitempty"`
}

// Doubt is a pod whose policies cannot be evaluated.
type Doubt struct {
	Pod string `json:"pod"` // namespace/name
	Why string `json:"why"`
}

// Same reports that nothing is different, and that everything was compared.
func (r *Report) Same() bool { return len(r.Opened)+len(r.Closed)+len(r.Unknown) == 0 }

// Row is connections between groups of pods and addresses.
type Row struct {
	From  []Group `json:"from"`
	To    []Group `json:"to"`
	Ports string  `json:"ports"`
	// Protocols has Ports as fields.
	Protocols []Protocol `json:"protocols"`
	// Families are IPv4, IPv6, or both.
	Families []string `json:"families"`
	// Before and After are one of these connections in the old and in the new objects. Nil: one of its pods is not there.
	Before *intent.Example `json:"before,omitempty"`
	After  *intent.Example `json:"after,omitempty"`
}

// Group is pods or addresses with a common name.
type Group struct {
	// Name is "every pod", "ns:NAMESPACE", "NAMESPACE/WORKLOAD", "NAMESPACE/POD", "outside", or a range of addresses.
	Name string `json:"name"`
	// Pods are the pods; nil for addresses, and for groups that their names define.
	Pods []string `json:"pods,omitempty"`
	// Only says that the pods are in one set of objects alone: new, or removed.
	Only string `json:"only,omitempty"`
}

// pair is pods that no policy of either set of objects distinguishes.
type pair struct {
	slots []slot
	class [2]*intent.Class // nil if the slots have no pod there
	addrs []netip.Addr     // that stand for the pair in sets
	at    map[netip.Addr][2]int
}

// slot is a pod in the old and in the new objects. If only one of them has it, another pod of its workload takes its place in the other; nil:
// the workload has none.
type slot struct {
	members [2]*class.Member
	name    string
	only    string // "removed", "new", or "": the pod is in both
}

// comparison is both sets of objects.
type comparison struct {
	space    *space.Space
	clusters [2]*intent.Cluster
	pairs    []*pair
	byAddr   map[netip.Addr]*pair
	sorted   []netip.Addr // addresses of pairs
	outside  [2]space.Set // headers from, and to, what is outside in both sets of objects
	fresh    space.Set
}

// Compare compares.
func Compare(before, after []model.Object) *Report {
	s := space.New()
	c := &comparison{space: s, clusters: [2]*intent.Cluster{intent.ReadInto(s, before), intent.ReadInto(s, after)}, byAddr: map[netip.Addr]*pair{}}
	c.fresh = c.clusters[0].Fresh()
	c.findPairs()
	for i, destination := range []bool{false, true} {
		c.outside[i] = s.Intersect(c.clusters[0].Outside(destination), c.clusters[1].Outside(destination))
	}
	was, is := c.connections(0), c.connections(1)
	r := &Report{Opened: []Row{}, Closed: []Row{}}
	ignored := c.toThemselves()
	for _, p := range c.pairs {
		ignored = s.Union(ignored, c.doubtful(p, r))
	}
	slices.Sort(r.Unknown)
	r.Unknown = slices.Compact(r.Unknown)
	slices.SortFunc(r.Doubts, func(a, b Doubt) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Why, b.Why)) })
	r.Doubts = slices.Compact(r.Doubts)
	r.Opened = c.rows(s.Minus(s.Minus(is, was), ignored), 1)
	r.Closed = c.rows(s.Minus(s.Minus(was, is), ignored), 0)
	return r
}

// findPairs pairs the pods of each workload, and joins slots that no policy distinguishes.
func (c *comparison) findPairs() {
	type key struct{ old, new *intent.Class }
	workloads := map[string]*[2][]*class.Member{}
	classOf := map[*class.Member]*intent.Class{}
	for side, cluster := range c.clusters {
		for _, k := range cluster.Classes {
			for i := range k.Members {
				m := &k.Members[i]
				name := m.ID.Namespace + "/" + class.Workload(m.Pod.Pod)
				if workloads[name] == nil {
					workloads[name] = &[2][]*class.Member{}
				}
				workloads[name][side] = append(workloads[name][side], m)
				classOf[m] = k
			}
		}
	}
	known := map[key]*pair{}
	for _, name := range sortedNames(workloads) {
		for _, slot := range slotsOf(workloads[name]) {
			k := key{classOf[slot.members[0]], classOf[slot.members[1]]}
			if known[k] == nil {
				known[k] = &pair{class: [2]*intent.Class{k.old, k.new}}
				c.pairs = append(c.pairs, known[k])
			}
			known[k].slots = append(known[k].slots, slot)
		}
	}
	c.placePairs()
}

func sortedNames(m map[string]*[2][]*class.Member) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// slotsOf pairs the pods of one workload: those in both sets of objects by name, others in their order.
func slotsOf(members *[2][]*class.Member) (slots []slot) {
	for side := range members {
		slices.SortFunc(members[side], func(a, b *class.Member) int { return a.ID.Compare(b.ID) })
	}
	var rest [2][]*class.Member
	for side, list := range members {
		for _, m := range list {
			at := slices.IndexFunc(members[1-side], func(n *class.Member) bool { return n.ID == m.ID })
			switch {
			case at < 0:
				rest[side] = append(rest[side], m)
			case side == 0:
				slots = append(slots, slot{[2]*class.Member{m, members[1][at]}, m.ID.String(), ""})
			}
		}
	}
	for side, only := range []string{"removed", "new"} {
		for i, m := range rest[side] {
			s := slot{name: m.ID.String(), only: only}
			s.members[side], s.members[1-side] = m, nth(rest[1-side], members[1-side], i)
			slots = append(slots, s)
		}
	}
	return slots
}

// nth returns a pod of those that are only in one set of objects, or else the last of all; nil: the workload has none.
func nth(rest, all []*class.Member, i int) *class.Member {
	switch {
	case i < len(rest):
		return rest[i]
	case len(all) > 0:
		return all[len(all)-1]
	}
	return nil
}

// The networks of addresses that stand for pairs. No host has them (240.0.0.0/4 is reserved by RFC 1112, 100:0:0:1::/64 by RFC 9780).
var (
	pairs4 = netip.MustParseAddr("248.0.0.0")   // read only
	pairs6 = netip.MustParseAddr("100:0:0:1::") // read only
)

// placePairs gives pairs addresses: of each family as many as the class has that has more.
func (c *comparison) placePairs() {
	four, six := pairs4, pairs6
	for _, p := range c.pairs {
		p.at = map[netip.Addr][2]int{}
		var own [2][2][]int // side, family: indexes
		for side, k := range p.class {
			if k == nil {
				continue
			}
			for i, a := range k.Addrs() {
				family := 0
				if a.Is6() {
					family = 1
				}
				own[side][family] = append(own[side][family], i)
			}
		}
		for family, next := range []*netip.Addr{&four, &six} {
			for n := range max(len(own[0][family]), len(own[1][family])) {
				*next = next.Next()
				p.addrs = append(p.addrs, *next)
				p.at[*next] = [2]int{indexOf(own[0][family], n), indexOf(own[1][family], n)}
				c.byAddr[*next] = p
				c.sorted = append(c.sorted, *next)
			}
			*next = next.Next() // so that the addresses of two pairs are no range
		}
	}
	slices.SortFunc(c.sorted, netip.Addr.Compare)
}

// indexOf returns -1 where a class has fewer addresses.
func indexOf(list []int, n int) int {
	if n < len(list) {
		return list[n]
	}
	return -1
}

// connections is what policies of one side allow, between the addresses of pairs.
func (c *comparison) connections(side int) space.Set {
	var moves []space.Move
	for _, p := range c.pairs {
		for _, a := range p.addrs {
			if i := p.at[a][side]; i >= 0 {
				moves = append(moves, space.Move{From: p.class[side].Addrs()[i], To: a})
			}
		}
	}
	return space.Moved(c.space, c.clusters[side].Connections(c.outside[0], c.outside[1]), moves)
}

// toThemselves is the headers between addresses of a pair of one pod. Such packets pass regardless of policies.
func (c *comparison) toThemselves() space.Set {
	var sets []space.Set
	for _, p := range c.pairs {
		if len(p.slots) == 1 {
			nets := prefixes(p.addrs)
			sets = append(sets, c.space.Intersect(c.space.Sources(nets...), c.space.Destinations(nets...)))
		}
	}
	return c.space.Union(sets...)
}

func prefixes(addrs []netip.Addr) (nets []netip.Prefix) {
	for _, a := range addrs {
		nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
	}
	return nets
}

// doubtful is the headers of a pair about which a policy cannot be evaluated. It notes the pods.
func (c *comparison) doubtful(p *pair, r *Report) (set space.Set) {
	for side, k := range p.class {
		for _, egress := range []bool{true, false} {
			if k == nil {
				continue
			}
			if _, doubt := c.clusters[side].Allowed(k, egress); doubt != "" {
				for i := range p.slots {
					r.Unknown = append(r.Unknown, fmt.Sprintf("%s: %s", p.slots[i].name, doubt))
					r.Doubts = append(r.Doubts, Doubt{p.slots[i].name, doubt})
				}
				if nets := prefixes(p.addrs); egress {
					set = c.space.Union(set, c.space.Sources(nets...))
				} else {
					set = c.space.Union(set, c.space.Destinations(nets...))
				}
			}
		}
	}
	return set
}

// compareRows puts rows with the most general groups first.
func compareRows(a, b Row) int {
	return cmp.Or(slices.CompareFunc(a.From, b.From, compareGroups), slices.CompareFunc(a.To, b.To, compareGroups), cmp.Compare(a.Ports, b.Ports))
}

func compareGroups(a, b Group) int { return cmp.Compare(a.Name, b.Name) }
