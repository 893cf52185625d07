package calc

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/model"
)

// member is one member of an IP set: a network, or an address with protocol and port.
type member struct {
	cidr.CIDR
	port  uint16
	proto model.Protocol // 0 for a network
}

// String is Felix's text of a member: "10.0.0.0/24", or "10.0.0.1,tcp:80".
func (m member) String() string { return string(m.appendTo(nil)) }

func (m member) appendTo(buf []byte) []byte {
	if m.proto == 0 {
		return m.Prefix().AppendTo(buf)
	}
	buf = append(append(m.Addr().AppendTo(buf), ','), protocolName(m.proto)...)
	return strconv.AppendUint(append(buf, ':'), uint64(m.port), 10)
}

func (m member) compare(o member) int {
	return cmp.Or(m.CIDR.Compare(o.CIDR), cmp.Compare(m.proto, o.proto), cmp.Compare(m.port, o.port))
}

func protocolName(p model.Protocol) string {
	switch p {
	case model.UDP:
		return "udp"
	case model.SCTP:
		return "sctp"
	}
	return "tcp"
}

// memberList holds distinct members of one set, in any order.
type memberList struct {
	v4   []network4 // nearly always all of them
	rest []member
	buf  []byte // scratch for texts
}

func (l *memberList) addMember(m member) {
	if m.proto == 0 && !m.V6 {
		l.v4 = append(l.v4, network4Of(m.CIDR))
	} else {
		l.rest = append(l.rest, m)
	}
}

// textsOf is memberList.texts.
func textsOf(list []member) []string {
	var l memberList
	for _, m := range list {
		l.addMember(m)
	}
	return l.texts()
}

// texts returns the members' texts in a stable order; it sorts the lists. Consecutive texts are parts of one string.
func (l *memberList) texts() []string {
	n := len(l.v4) + len(l.rest)
	if n == 0 {
		return nil
	}
	slices.Sort(l.v4)
	slices.SortFunc(l.rest, member.compare)
	w := textWriter{out: make([]string, 0, n), buf: slices.Grow(l.buf[:0], 20*min(n, atATime))}
	for _, n := range l.v4 {
		w.buf = n.appendTo(w.buf)
		w.endText()
	}
	for _, m := range l.rest {
		w.buf = m.appendTo(w.buf)
		w.endText()
	}
	w.flushTexts()
	l.buf = w.buf
	return w.out
}

// textWriter makes one string of up to atATime texts.
type textWriter struct {
	out  []string
	buf  []byte
	ends [atATime]int
	n    int
}

const atATime = 64

func (w *textWriter) endText() {
	w.ends[w.n] = len(w.buf)
	if w.n++; w.n == len(w.ends) {
		w.flushTexts()
	}
}

func (w *textWriter) flushTexts() {
	all, start := string(w.buf), 0
	for _, end := range w.ends[:w.n] {
		w.out = append(w.out, all[start:end])
		start = end
	}
	w.buf, w.n = w.buf[:0], 0
}

// network4 is an IPv4 network in eight bytes: the address, then the length, which is never zero. It sorts like cidr.
// Nearly all members of sets in nearly all clusters are IPv4 networks, and a cluster may have a million.
type network4 uint64

func network4Of(c cidr.CIDR) network4 { return network4(c.Lo&0xffffffff<<8 | uint64(c.Bits)) }

// appendTo appends the text that member.String returns.
func (n network4) appendTo(buf []byte) []byte {
	at := len(buf)
	buf = slices.Grow(buf, 20)[:at+20] // an octet is written as four bytes; the next one overwrites those that are too many
	for _, shift := range [...]uint8{32, 24, 16, 8, 0} {
		o := &octets[byte(n>>shift)]
		*(*[4]byte)(buf[at:]) = o.text
		at += int(o.n)
		buf[at] = "//..."[shift/8]
		at++
	}
	return buf[:at-1]
}

func (n network4) cidr() cidr.CIDR { return cidr.CIDR{Lo: 0xffff<<32 | uint64(n>>8), Bits: uint8(n)} }

// octets holds the text of each byte value.
var octets = func() (all [256]struct {
	text [4]byte
	n    uint8
},
) {
	for i := range all {
		all[i].n = uint8(copy(all[i].text[:], strconv.Itoa(i)))
	}
	return all
}()
