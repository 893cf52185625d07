package match

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// Buckets is the number of parts of a set; a table of a split segment takes one or more of them.
const Buckets = 64

// nearBits defines, as a power of two, how many addresses are near each other: VPP keeps the rules of about that many under one entry of
// its hash table (tuple merge of plugins/acl/hash_lookup.c), and applies and removes them faster if they are adjacent.
const nearBits = 6

// BucketOf returns the part of a peer, the same in every process. Addresses near each other have the same part.
func BucketOf(p netip.Prefix) int {
	if near := p.Addr().BitLen() - nearBits; p.Bits() > near {
		p = netip.PrefixFrom(p.Addr(), near).Masked()
	}
	h := uint32(2166136261)
	a := p.Addr().As16()
	for _, b := range a {
		h = (h ^ uint32(b)) * 16777619
	}
	h = (h ^ uint32(p.Bits())) * 16777619
	return int((h ^ h>>15) % Buckets)
}

// endpoint is a member of a set of addresses and ports.
type endpoint struct {
	addr  netip.Addr
	proto uint8
	port  uint16
}

func (e endpoint) compareTo(o endpoint) int {
	if c := e.addr.Compare(o.addr); c != 0 {
		return c
	}
	if e.proto != o.proto {
		return int(e.proto) - int(o.proto)
	}
	return int(e.port) - int(o.port)
}

// Set is one of Felix's sets: of prefixes, or of addresses with ports.
type Set struct {
	ported bool
	bad    map[string]struct{} // unreadable members: while any exist, the content of the set is unknown
	nets   [2]netSet
	ports  map[endpoint]struct{}
	sorted []endpoint // of ports; nil: not made yet
}

// netSet has the members of one family.
type netSet struct {
	parts [Buckets][]netip.Prefix // each sorted
	size  int
	lens  [129]int       // number of prefixes of each length
	all   []netip.Prefix // sorted; nil: not made yet
}

func (n *netSet) addPrefix(p netip.Prefix) bool {
	part := &n.parts[BucketOf(p)]
	i, found := slices.BinarySearchFunc(*part, p, netset.Compare)
	if found {
		return false
	}
	*part = slices.Insert(*part, i, p)
	n.size++
	n.lens[p.Bits()]++
	n.all = nil
	return true
}

func (n *netSet) removePrefix(p netip.Prefix) bool {
	part := &n.parts[BucketOf(p)]
	i, found := slices.BinarySearchFunc(*part, p, netset.Compare)
	if !found {
		return false
	}
	*part = slices.Delete(*part, i, i+1)
	n.size--
	n.lens[p.Bits()]--
	n.all = nil
	return true
}

func (n *netSet) has(p netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(n.parts[BucketOf(p)], p, netset.Compare)
	return found
}

// List returns all members, sorted.
func (n *netSet) List() []netip.Prefix {
	if n.all == nil && n.size > 0 {
		n.all = make([]netip.Prefix, 0, n.size)
		for _, part := range n.parts {
			n.all = append(n.all, part...)
		}
		slices.SortFunc(n.all, netset.Compare)
	}
	return n.all
}

// Covers reports whether one member contains all of p.
func (n *netSet) Covers(p netip.Prefix) bool {
	if n.size == 0 {
		return false
	}
	for bits := p.Bits(); bits >= 0; bits-- {
		if n.lens[bits] > 0 && n.has(netip.PrefixFrom(p.Addr(), bits).Masked()) {
			return true
		}
	}
	return false
}

// Known reports whether the set has prefixes that are all known; nil: it does not exist.
func (s *Set) Known() bool { return s != nil && !s.ported && len(s.bad) == 0 }

// Size returns the number of prefixes of a family.
func (s *Set) Size(f Family) int { return s.nets[f].size }

// WholeBytes returns the number of IPv6 prefixes that end with a byte for the same addresses.
func (s *Set) WholeBytes() (n int) {
	for bits, count := range s.nets[V6].lens {
		n += count * budget.WholeBytes(bits)
	}
	return n
}

// Bucket returns the prefixes of a family in a bucket, sorted.
func (s *Set) Bucket(f Family, b int) []netip.Prefix { return s.nets[f].parts[b] }

// Sets are Felix's sets, by name.
type Sets map[string]*Set

// Change changes the members of a set. It returns a bit for each bucket that changed; replaced: the set began or ceased to be known, so that all that
// depends on it may differ.
func (all Sets) Change(m *felix.IPSetDeltaUpdate) (changed uint64, replaced bool) {
	s := all[m.GetId()]
	if s == nil { // a delta without the set before it
		s = NewSet(&felix.IPSetUpdate{})
		s.addMembers([]string{"a delta before the set"})
		all[m.GetId()] = s
	}
	was := len(s.bad) > 0
	changed = s.removeMembers(m.GetRemovedMembers()) | s.addMembers(m.GetAddedMembers())
	return changed, was != (len(s.bad) > 0)
}

// NewSet returns the set of a message.
func NewSet(m *felix.IPSetUpdate) *Set {
	s := &Set{ported: m.GetType() == felix.IPSetUpdate_IP_AND_PORT, bad: map[string]struct{}{}, ports: map[endpoint]struct{}{}}
	s.addMembers(m.GetMembers())
	return s
}

// addMembers adds members; the result has a bit for each bucket that changed.
func (s *Set) addMembers(members []string) (changed uint64) {
	for _, text := range members {
		changed |= s.change(text, true)
	}
	return changed
}

// removeMembers removes members.
func (s *Set) removeMembers(members []string) (changed uint64) {
	for _, text := range members {
		changed |= s.change(text, false)
	}
	return changed
}

func (s *Set) change(text string, in bool) uint64 {
	if s.ported {
		return s.changePort(text, in)
	}
	p, err := netset.Parse(text)
	if err != nil {
		return s.changeBad(text, in)
	}
	net := &s.nets[FamilyOf(p.Addr())]
	if in && !net.addPrefix(p) || !in && !net.removePrefix(p) {
		return 0
	}
	return 1 << BucketOf(p)
}

func (s *Set) changePort(text string, in bool) uint64 {
	e, err := parseEndpoint(text)
	if err != nil {
		return s.changeBad(text, in)
	}
	if _, had := s.ports[e]; had == in {
		return 0
	}
	if in {
		s.ports[e] = struct{}{}
	} else {
		delete(s.ports, e)
	}
	s.sorted = nil
	return 1 << BucketOf(netip.PrefixFrom(e.addr, e.addr.BitLen()))
}

func (s *Set) changeBad(text string, in bool) uint64 {
	if in {
		s.bad[text] = struct{}{}
	} else {
		delete(s.bad, text)
	}
	return ^uint64(0)
}

// endpoints returns all members of a set with ports, sorted.
func (s *Set) endpoints() []endpoint {
	if s.sorted == nil {
		for e := range s.ports {
			s.sorted = append(s.sorted, e)
		}
		slices.SortFunc(s.sorted, endpoint.compareTo)
	}
	return s.sorted
}

// MemberPrefix returns the addresses of a member of any set; false: it cannot be read.
func MemberPrefix(text string) (netip.Prefix, bool) {
	if e, err := parseEndpoint(text); err == nil {
		return netip.PrefixFrom(e.addr, e.addr.BitLen()), true
	}
	p, err := netset.Parse(text)
	return p, err == nil
}

// parseEndpoint parses "10.0.0.1,tcp:80".
func parseEndpoint(text string) (endpoint, error) {
	addr, rest, _ := strings.Cut(text, ",")
	proto, port, ok := strings.Cut(rest, ":")
	a, err := netip.ParseAddr(addr)
	if err != nil || !ok || a.Zone() != "" {
		return endpoint{}, fmt.Errorf("%q is no address and port", text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return endpoint{}, fmt.Errorf("%q is no address and port", text)
	}
	e := endpoint{addr: a.Unmap(), port: uint16(n)}
	switch strings.ToLower(proto) {
	case "tcp":
		e.proto = TCP
	case "udp":
		e.proto = UDP
	case "sctp":
		e.proto = SCTP
	default:
		return endpoint{}, fmt.Errorf("%q has no known protocol", text)
	}
	return e, nil
}
