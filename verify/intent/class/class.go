// Package class turns the pods of a cluster into classes: pods that no policy distinguishes.
//
// Two pods are of one class if the same selectors of policies and of their peers select them, the same networks of policies have their
// addresses, the same Services that rules name have them as endpoints, and they have the same named ports.
//
// Invariant: in a header, the address of a pod may be replaced by the corresponding address of another pod of its class, and policies decide
// the same. Corresponding are addresses at the same index of Addrs.
package class

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// Member is a pod and its addresses in the order of its class.
type Member struct {
	*meaning.Pod
	Addrs []netip.Addr
	// Key is equal for the pods of one class.
	Key string
}

// Members returns the pods of a cluster with the keys of their classes, in the order of the cluster.
func Members(c *meaning.Cluster) []Member {
	b := newBounds(c)
	selected := b.selections(c.Pods)
	out := make([]Member, 0, len(c.Pods))
	for i, p := range c.Pods {
		m := Member{Pod: p, Addrs: slices.Clone(p.IPs)}
		slices.SortFunc(m.Addrs, func(x, y netip.Addr) int {
			return cmp.Or(cmp.Compare(x.BitLen(), y.BitLen()), cmp.Compare(b.interval(x), b.interval(y)), strings.Compare(b.services[x], b.services[y]), x.Compare(y))
		})
		var key strings.Builder
		key.WriteString(selected[i])
		for _, a := range m.Addrs {
			fmt.Fprintf(&key, "|%d %d %s", a.BitLen(), b.interval(a), b.services[a])
		}
		ports := slices.Clone(p.Ports)
		slices.SortFunc(ports, func(x, y model.NamedPort) int {
			return cmp.Or(strings.Compare(x.Name, y.Name), cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.Port, y.Port))
		})
		for _, port := range ports {
			if b.ports[port.Name] {
				fmt.Fprintf(&key, "|%s %d %d", port.Name, port.Protocol, port.Port)
			}
		}
		m.Key = key.String()
		out = append(out, m)
	}
	return out
}

// bounds is everything that distinguishes pods.
type bounds struct {
	selectors []*selector.Selector // different ones
	edges     []netip.Addr         // sorted: the first addresses of intervals whose addresses are in the same networks
	ports     map[string]bool      // named by rules
	services  map[netip.Addr]string
}

func newBounds(c *meaning.Cluster) *bounds {
	b := &bounds{ports: map[string]bool{}, services: map[netip.Addr]string{}}
	texts, nets, services := map[string]bool{}, map[netip.Prefix]bool{}, map[model.ServiceID]bool{}
	for _, q := range c.Policies {
		texts[q.Selector] = true
		for _, rules := range [][]model.Rule{q.InboundRules, q.OutboundRules} {
			for i := range rules {
				for _, p := range []*model.Peer{&rules[i].Source, &rules[i].Destination} {
					texts[p.Selector], texts[p.NotSelector] = true, true
					for _, n := range slices.Concat(p.Nets, p.NotNets) {
						nets[n.Masked()] = true
					}
					for _, port := range slices.Concat(p.Ports, p.NotPorts) {
						b.ports[port.Name] = true
					}
					services[p.Service] = true
				}
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		if s, err := selector.Parse(text); err == nil {
			b.selectors = append(b.selectors, s)
		}
	}
	for _, n := range c.Nets() {
		nets[n.Masked()] = true
	}
	delete(services, model.ServiceID{})
	for _, slice := range c.Slices {
		if services[slice.Service] {
			for _, e := range slice.Endpoints {
				b.services[e.Addr] += fmt.Sprintf(" %s %v", slice.Service, slice.Ports)
			}
		}
	}
	for n := range nets {
		b.edges = append(b.edges, n.Addr())
		if next := last(n).Next(); next.IsValid() {
			b.edges = append(b.edges, next)
		}
	}
	slices.SortFunc(b.edges, netip.Addr.Compare)
	b.edges = slices.Compact(b.edges)
	return b
}

func last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(bytes) // 4 or 16 bytes are an address
	return a
}

// interval is the number of the interval that an address is in.
func (b *bounds) interval(a netip.Addr) int {
	at, found := slices.BinarySearchFunc(b.edges, a, netip.Addr.Compare)
	if found {
		return at + 1
	}
	return at
}

// selections returns for each pod which selectors select it. Each selector looks only at the pods that have one of its anchors.
func (b *bounds) selections(pods []*meaning.Pod) []string {
	kinds := map[string]int{} // texts of labels → index of their kind
	var labels []selector.Map
	kindOf := make([]int, len(pods))
	for i, p := range pods {
		text := labelText(p.Labels())
		at, known := kinds[text]
		if !known {
			at = len(labels)
			kinds[text] = at
			labels = append(labels, p.Labels())
		}
		kindOf[i] = at
	}
	index, everything := map[selector.Term][]int{}, make([]int, len(labels))
	for at, l := range labels {
		everything[at] = at
		for k, v := range l {
			key := selector.Intern(k)
			index[selector.Term{Key: key}] = append(index[selector.Term{Key: key}], at)
			index[selector.Term{Key: key, Value: selector.Intern(v)}] = append(index[selector.Term{Key: key, Value: selector.Intern(v)}], at)
		}
	}
	found := make([][]byte, len(labels))
	for number, s := range b.selectors {
		for _, at := range candidates(s, index, everything) {
			if s.Matches(labels[at]) {
				found[at] = binary.AppendUvarint(found[at], uint64(number))
			}
		}
	}
	out := make([]string, len(pods))
	for i := range pods {
		out[i] = string(found[kindOf[i]])
	}
	return out
}

// candidates are the labels that a selector may select.
func candidates(s *selector.Selector, index map[selector.Term][]int, everything []int) []int {
	best, least := everything, len(everything)
	for _, terms := range s.Anchors() {
		n := 0
		for _, t := range terms {
			n += len(index[t])
		}
		if n >= least {
			continue
		}
		least, best = n, nil
		for _, t := range terms {
			best = append(best, index[t]...)
		}
	}
	if len(best) < len(everything) {
		slices.Sort(best)
		best = slices.Compact(best) // labels may have several terms of a list
	}
	return best
}

func labelText(labels selector.Map) string {
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&text, "%q=%q,", k, labels[k])
	}
	return text.String()
}
