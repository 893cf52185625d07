package budget

import (
	"net/netip"
	"strconv"
	"strings"
)

// WholeBytes returns how many prefixes of whole bytes an IPv6 prefix of so many bits is: 1, 2, 4 … 128. A VPP before 25.06 compares IPv6 prefixes
// by whole bytes, so the driver writes fd00::/61 as eight prefixes of 64 bits.
func WholeBytes(bits int) int { return 1 << ((8 - bits%8) % 8) }

// pieces are numbers of prefixes, of IPv4 and of IPv6.
type pieces [2]int

const (
	v4 = 0
	v6 = 1

	families = 2
)

func (p *pieces) addPieces(q pieces) {
	for f := range p {
		p[f] = plus(p[f], q[f])
	}
}

// written is how many prefixes one becomes in the rules for a VPP.
func written(bits int, six, wholeBytes bool) pieces {
	switch {
	case !six:
		return pieces{v4: 1}
	case wholeBytes:
		return pieces{v6: WholeBytes(bits)}
	}
	return pieces{v6: 1}
}

// Left returns how many prefixes a prefix of so many bits, if it is excepted, leaves of a prefix of from bits that holds it: one of each length
// from+1 to bits, for IPv6 and a VPP that compares whole bytes as many of whole bytes as each is.
func Left(from, bits int, six, wholeBytes bool) int {
	return leftOfAll(bits, six && wholeBytes) - leftOfAll(from, six && wholeBytes)
}

func leftOfAll(bits int, wholeBytes bool) int {
	if !wholeBytes {
		return bits
	}
	n := 255 * (bits / 8) // 1 + 2 + 4 … 128 for each whole byte
	for length := bits - bits%8 + 1; length <= bits; length++ {
		n += WholeBytes(length)
	}
	return n
}

// left is how many prefixes one leaves of all others at most, if it is excepted.
func left(bits int, six, wholeBytes bool) pieces {
	if six {
		return pieces{v6: Left(0, bits, six, wholeBytes)}
	}
	return pieces{v4: Left(0, bits, six, wholeBytes)}
}

// prefixOf reads the length and the family of a member of a set, or of a range: "10.1.1.2/32", "fd00::2", "fd00::2,tcp:80". Near is its text without the
// last part of the address: alike for addresses of a 24, in IPv6 of a 112. It looks at nothing else: what cannot be read is one rule at most.
func prefixOf(text string) (bits int, six bool, near string) {
	if end := strings.IndexByte(text, ','); end >= 0 {
		text = text[:end]
	}
	mark := byte('.')
	if bits, six = 32, strings.IndexByte(text, ':') >= 0; six {
		bits, mark = 128, ':'
	}
	if slash := strings.LastIndexByte(text, '/'); slash >= 0 {
		if n, err := strconv.Atoi(text[slash+1:]); err == nil && n >= 0 && n < bits {
			bits = n
		}
	}
	return bits, six, text[:max(0, strings.LastIndexByte(text, mark))]
}

// nearBits are the bits that addresses of one near share, by family.
var nearBits = pieces{24, 112}

// Members counts the members of a set. The zero value, and nil, is an empty set.
type Members struct {
	size   pieces
	bytes6 int    // what those of IPv6 are in whole bytes
	ranges pieces // those that are more than one address
	near   [2]map[string]int
}

// Add counts members in, or with by -1 out.
func (m *Members) Add(members []string, by int) *Members {
	for _, text := range members {
		bits, six, near := prefixOf(text)
		f, single := v4, bits == 32
		if six {
			f, single = v6, bits == 128
			m.bytes6 += by * WholeBytes(bits)
		}
		m.size[f] += by
		if !single {
			m.ranges[f] += by
		}
		if m.near[f] == nil {
			m.near[f] = map[string]int{}
		}
		n, known := m.near[f][near]
		switch {
		case n+by <= 0:
			delete(m.near[f], near)
		case known:
			m.near[f][near] = n + by
		default:
			m.near[f][strings.Clone(near)] = n + by // the text of the message need not stay
		}
	}
	return m
}

// pieces is how many prefixes the members are in rules.
func (m *Members) pieces(wholeBytes bool) pieces {
	if m == nil {
		return pieces{}
	}
	out := pieces{max(0, m.size[v4]), max(0, m.size[v6])}
	if wholeBytes {
		out[v6] = max(0, m.bytes6)
	}
	return out
}

// left is how many prefixes the members leave of all others at most: the way down to where addresses are near each other, and from there to each.
func (m *Members) left(wholeBytes bool) (out pieces) {
	if m == nil {
		return out
	}
	for f, all := range [2]int{32, 128} {
		six := f == v6
		way, whole := left(nearBits[f], six, wholeBytes)[f], left(all, six, wholeBytes)[f]
		out[f] = plus(times(len(m.near[f]), way), times(max(0, m.size[f]), whole-way))
	}
	return out
}

// sum counts prefixes of a rule by f, which is written or left.
func sum(list []length, f func(bits int, six, wholeBytes bool) pieces, wholeBytes bool) (n pieces) {
	for _, l := range list {
		n.addPieces(f(l.bits, l.six, wholeBytes))
	}
	return n
}

// length is that of a prefix.
type length struct {
	bits int
	six  bool
}

func ofPrefixes(list []netip.Prefix) (out []length) {
	for _, p := range list {
		out = append(out, length{p.Bits(), p.Addr().Is6()})
	}
	return out
}

func ofTexts(list []string) (out []length) {
	for _, text := range list {
		bits, six, _ := prefixOf(text)
		out = append(out, length{bits, six})
	}
	return out
}

// depth is how many of the prefixes hold one address at most: as many as there are lengths.
func depth(list []length) (n pieces) {
	var seen [families][129]bool
	for _, l := range list {
		f := v4
		if l.six {
			f = v6
		}
		if l.bits >= 0 && !seen[f][l.bits] {
			seen[f][l.bits] = true
			n[f]++
		}
	}
	return n
}
