package acl

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// NoPlace is the place that no table of sessions has.
const NoPlace = 1<<64 - 1

// words are the key of a session and its value, as VPP has them in memory (fa_5tuple_t, VPP 24.06 to 26.06).
func (s *session) words() string {
	var raw [48]byte
	if s.src.Is4() {
		src, dst := s.src.As4(), s.dst.As4()
		copy(raw[24:], src[:])
		copy(raw[28:], dst[:])
	} else {
		src, dst := s.src.As16(), s.dst.As16()
		copy(raw[:], src[:])
		copy(raw[16:], dst[:])
	}
	binary.LittleEndian.PutUint16(raw[32:], s.sport)
	binary.LittleEndian.PutUint16(raw[34:], s.dport)
	raw[36] = s.proto
	epoch := s.epoch & (1<<15 - 1)
	if s.input {
		raw[37], epoch = 1, epoch|1<<15
	}
	binary.LittleEndian.PutUint16(raw[38:], uint16(s.swIf&0xffff))
	binary.LittleEndian.PutUint32(raw[40:], uint32(s.seq&0xffffffff))
	binary.LittleEndian.PutUint16(raw[46:], epoch)
	var out []string
	for i := 0; i < len(raw); i += 8 {
		out = append(out, fmt.Sprintf("%016x", binary.LittleEndian.Uint64(raw[i:])))
	}
	return strings.Join(out, " ")
}

// ShowSessions returns `show acl-plugin sessions thread 0 index 7`, without the parts about VPP's internals, for these interfaces. The table has a place for
// each session that was ever made; those of ended ones are free.
func ShowSessions(e *Engine, swIfs []uint32, place uint64) string {
	var b strings.Builder
	list := e.Sessions()
	total := len(list)
	fmt.Fprintf(&b, "Sessions total: add %d - del %d = %d\n", e.Made(), e.Made()-uint64(total), total)
	fmt.Fprintf(&b, "Sessions active: add %d - deact %d = %d\n", e.Made(), e.Made()-uint64(total), total)
	b.WriteString("\n\nPer-thread data:\nThread #0:\n" + showPlace(e, place) + "  connection add/del stats:\n")
	by := map[uint32]int{}
	for _, s := range list {
		by[s.SwIf]++
	}
	for _, swIf := range swIfs {
		fmt.Fprintf(&b, "    sw_if_index %d: add %d - del %d = %d; epoch chg: %d\n", swIf, by[swIf], 0, by[swIf], 0)
	}
	reclassify := 0
	if e.Reclassify() {
		reclassify = 1
	}
	fmt.Fprintf(&b, "Reclassify sessions: %d\n", reclassify)
	return b.String()
}

func showPlace(e *Engine, place uint64) string {
	if place > e.seq {
		return ""
	}
	for s := range e.sessions {
		if s.seq == place {
			return fmt.Sprintf("  session index %d:\n    info: %s\n    sw_if_index: %d\n    link list id: %d\n", place, s.words(), s.swIf, 1+s.kind())
		}
	}
	return fmt.Sprintf("  session index %d:\n    info: %s\n    link list id: 4\n", place, strings.TrimSpace(strings.Repeat(" 0000000000000000", 6)))
}

// ShowEntries returns the entries of the session tables in `show acl-plugin sessions verbose 1`: one for each direction of a session's packets.
func ShowEntries(e *Engine) string {
	var b strings.Builder
	b.WriteString("IPv4 Session lookup hash table:\n")
	e.expire()
	for s := range e.sessions {
		made := uint16(0)
		if s.input {
			made = 1 << 15
		}
		showEntry(&b, s.key, s.seq, made|s.epoch&(1<<15-1))
		if r, ok := s.reverse(); ok {
			showEntry(&b, r, s.seq, made|s.epoch&(1<<15-1))
		}
	}
	return b.String()
}

func showEntry(b *strings.Builder, k key, id uint64, epoch uint16) {
	in := 0
	if k.input {
		in = 1
	}
	fmt.Fprintf(b, "    0: l3 %s -> %s l4 lsb_of_sw_if_index %d proto %d l4_is_input %d l4_slow_path 0 l4_flags 0x%02x port %d -> %d | sess id %d thread id 0 epoch %04x\n",
		k.src, k.dst, k.swIf&0xffff, k.proto, in, in, k.sport, k.dport, id, epoch)
}

// ShowACLs returns `show acl-plugin acl`.
func ShowACLs(e *Engine) string {
	var b strings.Builder
	for _, a := range e.ACLs(None) {
		fmt.Fprintf(&b, "acl-index %d count %d tag {%s}\n", a.Index, len(a.Rules), a.Tag)
		for i, r := range a.Rules {
			fmt.Fprintf(&b, "  %9d: %s\n", i, showRule(&r))
		}
	}
	return b.String()
}

func showRule(r *Rule) string {
	fam := "ipv4"
	if r.Src.Addr().Is6() {
		fam = "ipv6"
	}
	span := func(p Range) string {
		if p.First == p.Last {
			return fmt.Sprint(p.First)
		}
		return fmt.Sprintf("%d-%d", p.First, p.Last)
	}
	s := fmt.Sprintf("%s %s src %s dst %s proto %d sport %s dport %s", fam, r.Action, r.Src, r.Dst, r.Proto, span(r.SrcPorts), span(r.DstPorts))
	if r.TCPMask|r.TCPValue != 0 {
		s += fmt.Sprintf(" tcpflags %d mask %d", r.TCPValue, r.TCPMask)
	}
	return s
}

// Text returns the tag and the rules, one a line.
func (a *ACL) Text() string {
	b := fmt.Appendf(make([]byte, 0, 64*(1+len(a.Rules))), "acl %q\n", a.Tag)
	for _, r := range a.Rules {
		b = append(r.AppendTo(append(b, "  "...)), '\n')
	}
	return string(b)
}

// Text returns the tag and the rules, one a line.
func (m *MACIP) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "macip-acl %q\n", m.Tag)
	for _, r := range m.Rules {
		fmt.Fprintf(&b, "  %s mac %x/%x %s/%d\n", r.Action, r.MAC, r.MACMask, r.Addr, r.Bits)
	}
	return b.String()
}
