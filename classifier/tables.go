package classifier

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// Protocols and next headers.
const (
	icmp     = 1
	tcp      = 6
	udp      = 17
	fragment = 44
	icmp6    = 58
	sctp     = 132
)

// chunkInit is the type of the chunk that begins an association. The type is byte 12 of an SCTP packet.
const (
	chunkInit = 1
	chunkAt   = 12
)

// layout says where a family's header holds the fields of rules, in bytes from its beginning.
type layout struct {
	v6           bool
	length       int // of masks, a multiple of 16
	protocol     int
	source, dest int // addresses
	address      int // bytes of one address
	payload      int // where SCTP begins
	fragment     int // fragment word of IPv4; 0 if the header has none
}

var ( // read only
	ip4 = layout{length: 48, protocol: 9, source: 12, dest: 16, address: 4, payload: 20, fragment: 6}
	ip6 = layout{v6: true, length: 64, protocol: 6, source: 8, dest: 24, address: 16, payload: 40}
)

// Parts of the fragment word: the offset in units of 8 bytes, and the flag that more fragments follow.
const (
	offset4  = 0x1fff
	more4    = 0x2000
	offset6  = 0xfff8 // in the fragment header of IPv6, at byte 2
	oneUnit6 = 0x0008
)

// pattern is a mask and the bytes to find under it.
type pattern struct{ mask, match []byte }

func (l *layout) pattern() pattern { return pattern{make([]byte, l.length), make([]byte, l.length)} }

func (p pattern) byte(at int, value byte) pattern {
	p.mask[at], p.match[at] = 0xff, value
	return p
}

func (p pattern) word(at int, mask, value uint16) pattern {
	binary.BigEndian.PutUint16(p.mask[at:], mask)
	binary.BigEndian.PutUint16(p.match[at:], value&mask)
	return p
}

func (p pattern) prefix(at int, n netip.Prefix) pattern {
	copy(p.match[at:], n.Addr().AsSlice())
	for i := range n.Bits() {
		p.mask[at+i/8] |= 0x80 >> (i % 8)
	}
	return p
}

// protocolIs matches all packets of a protocol.
func (l *layout) protocolIs(protocol byte) pattern { return l.pattern().byte(l.protocol, protocol) }

// init matches all INITs that are not fragments.
func (l *layout) init() pattern {
	p := l.protocolIs(sctp).byte(l.payload+chunkAt, chunkInit)
	if l.fragment > 0 {
		p.word(l.fragment, more4|offset4, 0)
	}
	return p
}

// table makes a table of patterns that share a mask.
func table(pass bool, list ...pattern) Table {
	t := Table{Mask: string(list[0].mask)}
	for _, p := range list {
		t.Entries = append(t.Entries, Entry{string(p.match), pass})
	}
	t.sort()
	return t
}

func (t *Table) sort() {
	slices.SortFunc(t.Entries, func(a, b Entry) int { return strings.Compare(a.Match, b.Match) })
}

// root is the first table. It passes packets that no later table can match.
func (l *layout) root() Table {
	control := byte(icmp)
	if l.v6 {
		control = icmp6
	}
	return table(true, l.protocolIs(tcp), l.protocolIs(udp), l.protocolIs(control))
}

// last drops every INIT that no rule permits.
func (l *layout) last() Table {
	if l.fragment == 0 {
		return table(false, l.init())
	}
	return table(false, l.init(), l.init().word(l.fragment, more4|offset4, more4))
}

// hidden are the tables that drop packets which may hide an INIT.
func (l *layout) hidden() []Table {
	if l.v6 {
		return hidden6()
	}
	return hidden4()
}

// hidden4 drops SCTP with IP options, where the chunk type has no fixed place. It also drops fragments with offset 1:
// the first 8 bytes of SCTP are the first unit of a fragment, and the chunk type is in the second, so such a fragment
// carries a chunk type without the ports. The fragment with the first unit alone is harmless without it.
func hidden4() []Table {
	var options []pattern
	for words := byte(6); words < 16; words++ {
		p := ip4.protocolIs(sctp)
		p.mask[0], p.match[0] = 0x0f, words
		options = append(options, p)
	}
	return []Table{table(false, options...), table(false, ip4.protocolIs(sctp).word(ip4.fragment, offset4, 1))}
}

// extensions are the IPv6 headers that SCTP may follow: hop-by-hop options, routing, fragment, authentication,
// destination options, mobility, host identity, shim6, and two for experiments.
func extensions() []byte { return []byte{0, 43, fragment, 51, 60, 135, 139, 140, 253, 254} }

// hidden6 drops SCTP after an extension header, and every packet with two extension headers, because the second has no
// fixed place. After a fragment header alone SCTP has a fixed place: only fragments are dropped that begin with an
// INIT, or that carry the chunk type of another fragment.
func hidden6() []Table {
	var chains []pattern
	for _, first := range extensions() {
		for _, second := range append(extensions(), sctp) {
			if first != fragment || second != sctp {
				chains = append(chains, ip6.protocolIs(first).byte(ip6.payload, second))
			}
		}
	}
	fragmented := func() pattern { return ip6.protocolIs(fragment).byte(ip6.payload, sctp) }
	return []Table{
		table(false, chains...),
		table(false, fragmented().word(ip6.payload+2, offset6, oneUnit6)),
		table(false, fragmented().word(ip6.payload+2, offset6, 0).byte(ip6.payload+8+chunkAt, chunkInit)),
	}
}

// compile lays out the rules of one family.
func compile(rules []Rule, l *layout) (Program, error) {
	p := packing{layout: l}
	for _, r := range rules {
		if r.Source.Addr().Is6() != l.v6 {
			continue
		}
		from, to := r.From.blocks(), r.To.blocks()
		if p.entries+len(from)*len(to) > MaxEntries {
			return nil, fmt.Errorf("%w: more than %d entries", ErrTooMany, MaxEntries)
		}
		for _, f := range from {
			for _, t := range to {
				p.addEntry(l.matchRule(r, f, t), r.Permit)
			}
		}
	}
	out := append(Program{l.root()}, l.hidden()...)
	for _, t := range p.tables {
		t.Table.sort()
		out = append(out, t.Table)
	}
	if out = append(out, l.last()); len(out) > MaxTables {
		return nil, fmt.Errorf("%w: %d tables, at most %d", ErrTooMany, len(out), MaxTables)
	}
	return out, nil
}

// matchRule matches the INITs of a rule, for one pair of blocks of ports.
func (l *layout) matchRule(r Rule, from, to block) pattern {
	return l.init().prefix(l.source, r.Source).prefix(l.dest, r.Destination).
		word(l.payload, from.mask(), from.first).word(l.payload+2, to.mask(), to.first)
}

// packing places entries into as few tables as it can.
type packing struct {
	*layout
	tables  []*packed
	entries int
}

// packed is a table that is being filled.
type packed struct {
	Table
	has   map[string]bool
	other [2][]words // entries that drop, and entries that pass
	words words      // of the mask
}

// words holds bytes as integers that compare quickly.
type words [8]uint64

func toWords(b []byte) (w words) {
	for i := range len(b) / 8 {
		w[i] = binary.BigEndian.Uint64(b[8*i:])
	}
	return w
}

// addEntry places an entry after all earlier entries that decide otherwise about some packet: in the first table with its
// mask that does not precede such an entry.
func (p *packing) addEntry(e pattern, pass bool) {
	mask, match := toWords(e.mask), toWords(e.match)
	var place *packed
	for _, t := range slices.Backward(p.tables) {
		if t.words == mask {
			if t.has[string(e.match)] {
				return // an earlier rule decides
			}
			place = t
		}
		if t.contradicts(mask, match, pass) {
			break
		}
	}
	if place == nil {
		place = &packed{Table: Table{Mask: string(e.mask)}, has: map[string]bool{}, words: mask}
		p.tables = append(p.tables, place)
	}
	place.has[string(e.match)] = true
	place.Entries = append(place.Entries, Entry{string(e.match), pass})
	place.other[index(pass)] = append(place.other[index(pass)], match)
	p.entries++
}

func index(pass bool) int {
	if pass {
		return 1
	}
	return 0
}

// contradicts reports whether the table has an entry with the other verdict for a packet that the given entry matches.
func (t *packed) contradicts(mask, match words, pass bool) bool {
	for i := range mask {
		mask[i] &= t.words[i]
	}
	return slices.ContainsFunc(t.other[1-index(pass)], func(o words) bool {
		for i := range mask {
			if (o[i]^match[i])&mask[i] != 0 {
				return false
			}
		}
		return true
	})
}

// Rules reads the rules back out of the programs of a direction. It returns false if the programs are not as Compile
// makes them. The rules have the same effect as the original ones, but may differ from them.
func Rules(v4, v6 Program) ([]Rule, bool) {
	four, ok4 := ip4.rulesOf(v4)
	six, ok6 := ip6.rulesOf(v6)
	return append(four, six...), ok4 && ok6
}

func (l *layout) rulesOf(p Program) (out []Rule, ok bool) {
	front := append(Program{l.root()}, l.hidden()...)
	if len(p) <= len(front) || !p[:len(front)].Equal(front) || !(Program{p[len(p)-1]}).Equal(Program{l.last()}) {
		return nil, false
	}
	for _, t := range p[len(front) : len(p)-1] {
		for _, e := range t.Entries {
			if len(t.Mask) != l.length || len(e.Match) != l.length {
				return nil, false
			}
			r := Rule{
				Permit: e.Pass, Source: l.network(t.Mask, e.Match, l.source), Destination: l.network(t.Mask, e.Match, l.dest),
				From: portsAt(t.Mask, e.Match, l.payload), To: portsAt(t.Mask, e.Match, l.payload+2),
			}
			again := l.matchRule(r, r.From.blocks()[0], r.To.blocks()[0])
			if string(again.mask) != t.Mask || string(again.match) != e.Match {
				return nil, false
			}
			out = append(out, r)
		}
	}
	return out, true
}

func (l *layout) network(mask, match string, at int) netip.Prefix {
	n := 0
	for i := range l.address {
		n += bits.OnesCount8(mask[at+i])
	}
	a, _ := netip.AddrFromSlice([]byte(match[at : at+l.address])) // the length is right
	return netip.PrefixFrom(a, n).Masked()
}

func portsAt(mask, match string, at int) Range {
	b := block{first: uint16(match[at])<<8 | uint16(match[at+1])}
	b.bits = bits.OnesCount8(mask[at]) + bits.OnesCount8(mask[at+1])
	b.first &= b.mask()
	return b.portRange()
}

// Equal reports whether both programs have the same tables.
func (p Program) Equal(o Program) bool {
	return slices.EqualFunc(p, o, func(a, b Table) bool { return a.Mask == b.Mask && slices.Equal(a.Entries, b.Entries) })
}
