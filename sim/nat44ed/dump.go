package nat44ed

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// DelSession is nat44_del_session: it takes either flow of the session.
func (e *Engine) DelSession(k SessionKey) int32 {
	if !e.enabled {
		return Unsupported
	}
	i, ok := e.flows[flowKey(addrNum(k.Addr), k.Port, addrNum(k.Ext), k.ExtPort, k.VRF, k.Proto)]
	if !ok {
		return NoSuchEntry
	}
	e.freeSession(i)
	return OK
}

// Users is nat44_user_dump: the inside addresses with sessions, in the order of their first session.
func (e *Engine) Users() []User {
	var out []User
	index := map[[2]uint32]int{}
	for i := range e.sessions.usedSlots() {
		s := e.sessions.slotAt(i)
		k := [2]uint32{s.in2out.addr, s.in2out.table}
		at, ok := index[k]
		if !ok {
			at = len(out)
			index[k] = at
			out = append(out, User{Addr: numAddr(s.in2out.addr), VRF: s.in2out.table})
		}
		if s.flags&sessStatic != 0 {
			out[at].StaticSessions++
		} else {
			out[at].Sessions++
		}
	}
	return out
}

// UserSessions is nat44_user_session_v3_dump: sessions of an inside address in all VRFs.
func (e *Engine) UserSessions(addr netip.Addr) []UserSession {
	var out []UserSession
	for i := range e.sessions.usedSlots() {
		if s := e.sessions.slotAt(i); s.in2out.addr == addrNum(addr) {
			out = append(out, e.userSession(s))
		}
	}
	return out
}

func (e *Engine) userSession(s *session) UserSession {
	d := UserSession{
		Outside:        netip.AddrPortFrom(numAddr(s.out2in.addr), s.out2in.port),
		Inside:         netip.AddrPortFrom(numAddr(s.in2out.addr), s.in2out.port),
		ExtHost:        netip.AddrPortFrom(numAddr(s.extAddr), s.extPort),
		Proto:          s.proto,
		Flags:          ExtHostValid,
		LastHeard:      s.lastHeard.Truncate(time.Second),
		SinceLastHeard: (e.now() - s.lastHeard).Truncate(time.Second),
		TotalBytes:     s.bytes,
		TotalPkts:      s.packets,
		TimedOut:       e.now().Truncate(time.Second) >= (s.lastHeard + e.timeout(s)).Truncate(time.Second),
		InsideTable:    s.in2out.table,
	}
	if s.proto == 0 { // VPP stores the protocol's number there, and reads it as a port in network byte order
		d.Inside = swapped(d.Inside)
		d.Outside = swapped(d.Outside)
	}
	if s.flags&sessStatic != 0 {
		d.Flags |= Static
	}
	if s.flags&sessTwiceNAT != 0 {
		d.Flags |= TwiceNAT
		d.ExtHostNAT = netip.AddrPortFrom(numAddr(s.extNATAddr), s.extNATPort)
	}
	return d
}

func swapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr(), a.Port()<<8|a.Port()>>8)
}

// Session is one entry of the session table, for display and golden files.
type Session struct {
	Proto model.Protocol
	// In2Out is the inside host's flow with its translation, Out2In the other direction. Bypass sessions have In2Out only.
	In2Out, Out2In Flow
	Flags          []string // static, load-balanced, twice-nat, bypass, affinity, exact-address, hairpin
	State          string   // TCP: transitory, established or closing; "" otherwise
	TimedOut       bool
}

// Flow is one direction of a session: Match becomes Rewrite. For ICMP both ports are the echo identifier.
type Flow struct{ MatchSrc, MatchDst, RewriteSrc, RewriteDst netip.AddrPort }

// String is "src -> dst => src -> dst".
func (f Flow) String() string {
	return fmt.Sprintf("%s -> %s => %s -> %s", f.MatchSrc, f.MatchDst, f.RewriteSrc, f.RewriteDst)
}

// String returns one line: the protocol, the direction of the packet that made the session, flags and TCP state.
func (s Session) String() string {
	words := []string{strings.ToLower(s.Proto.String())}
	switch {
	case slices.Contains(s.Flags, "bypass"):
		words = append(words, "bypass", s.In2Out.MatchDst.String(), "->", s.In2Out.MatchSrc.String())
	case slices.Contains(s.Flags, "static"):
		words = append(words, "out2in", s.Out2In.String())
	default:
		words = append(words, "in2out", s.In2Out.String())
	}
	for _, f := range s.Flags {
		if f != "bypass" {
			words = append(words, f)
		}
	}
	if s.State != "" {
		words = append(words, s.State)
	}
	if s.TimedOut {
		words = append(words, "timed-out")
	}
	return strings.Join(words, " ")
}

// Sessions returns all sessions in the order of their text.
func (e *Engine) Sessions() []Session {
	var out []Session
	for i := range e.sessions.usedSlots() {
		out = append(out, e.view(e.sessions.slotAt(i)))
	}
	slices.SortStableFunc(out, func(a, b Session) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (e *Engine) view(s *session) Session {
	proto := s.proto
	if proto == 0 { // protocols without ports: only the flow has the number
		proto = s.o2i.match.proto()
	}
	v := Session{Proto: model.Protocol(proto), In2Out: s.i2o.view(), Out2In: s.o2i.view(), TimedOut: e.timedOut(s)}
	for _, f := range [...]struct {
		flag uint16
		name string
	}{
		{sessStatic, "static"},
		{sessLB, "load-balanced"},
		{sessTwiceNAT, "twice-nat"},
		{sessBypass, "bypass"},
		{sessAffinity, "affinity"},
		{sessExactAddress, "exact-address"},
		{sessHairpin, "hairpin"},
	} {
		if s.flags&f.flag != 0 {
			v.Flags = append(v.Flags, f.name)
		}
	}
	if s.proto == protoTCP {
		v.State = [...]string{tcpClosed: "transitory", tcpEstablished: "established", tcpClosing: "closing"}[s.tcpState]
	}
	return v
}

func (f *flow) view() Flow {
	sport, dport := f.sport, f.dport
	if f.match.proto() == protoICMP {
		sport, dport = f.icmpID, f.icmpID
	}
	return Flow{
		MatchSrc:   netip.AddrPortFrom(numAddr(f.match.saddr), f.match.sport),
		MatchDst:   netip.AddrPortFrom(numAddr(f.match.daddr), f.match.dport),
		RewriteSrc: netip.AddrPortFrom(numAddr(f.saddr), sport),
		RewriteDst: netip.AddrPortFrom(numAddr(f.daddr), dport),
	}
}
