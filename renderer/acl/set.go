package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
)

// buckets is the number of parts of a set; a table of a split segment takes one or more of them.
const buckets = 64

// nearBits defines, as a power of two, how many addresses are near each other: VPP keeps the rules of about that many under one entry of
// its hash table (tuple merge of plugins/acl/hash_lookup.c), and applies and removes them faster if they are adjacent.
const nearBits = 6

// bucketOf returns the part of a peer, the same in every process. Addresses near each other have the same part.
func bucketOf(p netip.Prefix) int {
	if near := p.Addr().BitLen() - nearBits; p.Bits() > near {
		p = netip.PrefixFrom(p.Addr(), near).Masked()
	}
	h := uint32(2166136261)
	a := p.Addr().As16()
	for _, b := range a {
		h = (h ^ uint32(b)) * 16777619
	}
	h = (h ^ uint32(p.Bits())) * 16777619
	return int((h ^ h>>15) % buckets)
}

// endpoint is a member of a set of addresses and ports.
type endpoint struct {
	addr  netip.Addr
	proto uint8
	port  uint16
}

func (e endpoint) compare(o endpoint) int {
	if c := e.addr.Compare(o.addr); c != 0 {
		return c
	}
	if e.proto != o.proto {
		return int(e.proto) - int(o.proto)
	}
	return int(e.port) - int(o.port)
}

// ipset is one of Felix's sets: of prefixes, or of addresses with ports.
type ipset struct {
	ported bool
	bad    map[string]struct{} // unreadable members: while any exist, the content of the set is unknown
	nets   [2]netSet
	ports  map[endpoint]struct{}
	sorted []endpoint // of ports; nil: not made yet
}

// netSet has the members of one family.
type netSet struct {
	parts [buckets][]netip.Prefix // each sorted
	size  int
	lens  [129]int       // number of prefixes of each length
	all   []netip.Prefix // sorted; nil: not made yet
}

func (n *netSet) add(p netip.Prefix) bool {
	part := &n.parts[bucketOf(p)]
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

func (n *netSet) remove(p netip.Prefix) bool {
	part := &n.parts[bucketOf(p)]
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
	_, found := slices.BinarySearchFunc(n.parts[bucketOf(p)], p, netset.Compare)
	return found
}

// list returns all members, sorted.
func (n *netSet) list() []netip.Prefix {
	if n.all == nil && n.size > 0 {
		n.all = make([]netip.Prefix, 0, n.size)
		for _, part := range n.parts {
			n.all = append(n.all, part...)
		}
		slices.SortFunc(n.all, netset.Compare)
	}
	return n.all
}

// covers reports whether one member contains all of p.
func (n *netSet) covers(p netip.Prefix) bool {
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

func newSet(m *felix.IPSetUpdate) *ipset {
	s := &ipset{ported: m.GetType() == felix.IPSetUpdate_IP_AND_PORT, bad: map[string]struct{}{}, ports: map[endpoint]struct{}{}}
	s.add(m.GetMembers())
	return s
}

// add adds members; the result has a bit for each bucket that changed.
func (s *ipset) add(members []string) (changed uint64) {
	for _, text := range members {
		changed |= s.change(text, true)
	}
	return changed
}

// remove removes members.
func (s *ipset) remove(members []string) (changed uint64) {
	for _, text := range members {
		changed |= s.change(text, false)
	}
	return changed
}

func (s *ipset) change(text string, in bool) uint64 {
	if s.ported {
		return s.changePort(text, in)
	}
	p, err := netset.Parse(text)
	if err != nil {
		return s.changeBad(text, in)
	}
	net := &s.nets[familyOf(p.Addr())]
	if in && !net.add(p) || !in && !net.remove(p) {
		return 0
	}
	return 1 << bucketOf(p)
}

func (s *ipset) changePort(text string, in bool) uint64 {
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
	return 1 << bucketOf(netip.PrefixFrom(e.addr, e.addr.BitLen()))
}

func (s *ipset) changeBad(text string, in bool) uint64 {
	if in {
		s.bad[text] = struct{}{}
	} else {
		delete(s.bad, text)
	}
	return ^uint64(0)
}

// endpoints returns all members of a set with ports, sorted.
func (s *ipset) endpoints() []endpoint {
	if s.sorted == nil {
		for e := range s.ports {
			s.sorted = append(s.sorted, e)
		}
		slices.SortFunc(s.sorted, endpoint.compare)
	}
	return s.sorted
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
		e.proto = protoTCP
	case "udp":
		e.proto = protoUDP
	case "sctp":
		e.proto = protoSCTP
	default:
		return endpoint{}, fmt.Errorf("%q has no known protocol", text)
	}
	return e, nil
}

// add puts a value into the set of a key.
func add[K, V comparable](m map[K]map[V]struct{}, k K, v V) {
	if m[k] == nil {
		m[k] = map[V]struct{}{}
	}
	m[k][v] = struct{}{}
}

// remove takes a value out of the set of a key.
func remove[K, V comparable](m map[K]map[V]struct{}, k K, v V) {
	delete(m[k], v)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}
