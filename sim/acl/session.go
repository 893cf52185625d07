package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

const (
	icmp4 = 1
	icmp6 = 58
)

// key is a flow in one direction of an interface. Ports are those of TCP and UDP; ICMP has type and code in their place (an echo's
// identifier does not count); all others have zeros, and so have later fragments.
type key struct {
	src, dst     netip.Addr
	sport, dport uint16
	proto        uint8
	input        bool
	later        bool // a later fragment of another protocol than TCP and UDP, which shares no session with whole packets
	swIf         uint32
}

func keyOf(p *packet.Packet, swIf uint32, in bool) key {
	k := key{src: p.Src, dst: p.Dst, proto: uint8(p.Proto), input: in, swIf: swIf}
	switch {
	case p.Fragment.Later():
		k.later = p.Proto != model.TCP && p.Proto != model.UDP
	case k.isICMP():
		k.sport, k.dport = uint16(p.ICMPType), uint16(p.ICMPCode)
	case p.Proto == model.TCP || p.Proto == model.UDP:
		k.sport, k.dport = p.SrcPort, p.DstPort
	}
	return k
}

func (k key) isICMP() bool {
	return !k.later && (k.proto == icmp4 && k.src.Is4() || k.proto == icmp6 && k.src.Is6())
}

// replyType returns the ICMP type of a reply: only these types let the reply pass (icmp4_invmap, icmp6_invmap).
func replyType(k key) (uint16, bool) {
	t := map[uint16]uint16{8: 0, 13: 14, 15: 16, 17: 18}
	if k.proto == icmp6 {
		t = map[uint16]uint16{128: 129, 139: 140}
	}
	r, ok := t[k.sport]
	return r, ok
}

// reverse returns the other direction of the same interface; false: it has none.
func (k key) reverse() (key, bool) {
	r := key{src: k.dst, dst: k.src, sport: k.dport, dport: k.sport, proto: k.proto, input: !k.input, later: k.later, swIf: k.swIf}
	if k.isICMP() {
		t, ok := replyType(k)
		r.sport, r.dport = t, k.dport
		return r, ok
	}
	return r, true
}

// session is one reflected flow.
type session struct {
	key
	seq      uint64 // in order of making
	match    Match  // the rule that made it
	epoch    uint16
	active   time.Duration // last packet
	enqueued time.Duration // start of its timer
	flags    [2]uint8      // TCP flags seen, by direction
}

const (
	ackSyn       = packet.ACK | packet.SYN
	rstFinAckSyn = packet.RST | packet.FIN | ackSyn
)

// kind selects the idle time of a session. A TCP connection is established while both sides have sent SYN and ACK, and neither FIN
// nor RST.
type kind uint8

const (
	udpIdle kind = iota
	tcpIdle
	tcpTransient
)

func (s *session) kind() kind {
	switch {
	case s.proto != uint8(model.TCP):
		return udpIdle
	case s.flags[0]&rstFinAckSyn == ackSyn && s.flags[1]&rstFinAckSyn == ackSyn:
		return tcpIdle
	}
	return tcpTransient
}

func (e *Engine) timeout(k kind) time.Duration {
	return time.Duration([...]uint32{e.timeouts.UDPIdle, e.timeouts.TCPIdle, e.timeouts.TCPTransient}[k]) * time.Second
}

// deadline is the time when VPP finds the session idle for too long. VPP checks twice per timeout, counted from the start of the
// timer.
func (e *Engine) deadline(s *session) time.Duration {
	t := e.timeout(s.kind())
	half := t / 2
	if half == 0 {
		return s.enqueued
	}
	looks := max(1, (s.active+t-s.enqueued+half-1)/half)
	return s.enqueued + looks*half
}

// dynamic is the state that packets change.
type dynamic struct {
	flows    map[key]*session // both directions of a session
	sessions map[*session]bool
	seq      uint64
	// dying sessions have ended but still count; the next packet removes them.
	dying uint32
	// sweepAt is no later than the first deadline.
	sweepAt time.Duration

	recording bool
	journal   []func()
}

const never = time.Duration(1<<63 - 1)

func (d *dynamic) init() {
	d.flows, d.sessions, d.sweepAt = map[key]*session{}, map[*session]bool{}, never
}

// Mark identifies a state for Restore. Marks nest: restoring one makes later ones invalid.
type Mark struct {
	at      int
	seq     uint64
	dying   uint32
	sweepAt time.Duration
}

// Snapshot marks the sessions (and counters); from now on a journal records undo steps.
func (e *Engine) Snapshot() Mark {
	e.recording = true
	return Mark{len(e.journal), e.seq, e.dying, e.sweepAt}
}

// Restore returns to the state of the mark, which stays usable. It panics for a mark that Release or an earlier Restore made
// invalid.
func (e *Engine) Restore(m Mark) {
	if m.at > len(e.journal) {
		panic("acl: restore of a mark that is gone")
	}
	for i := len(e.journal) - 1; i >= m.at; i-- {
		e.journal[i]()
		e.journal[i] = nil
	}
	e.journal = e.journal[:m.at]
	e.seq, e.dying, e.sweepAt = m.seq, m.dying, min(m.sweepAt, e.sweepAt)
}

// Release forgets all marks and keeps no journal until the next Snapshot.
func (e *Engine) Release() { e.recording, e.journal = false, nil }

func (e *Engine) undo(f func()) {
	if e.recording {
		e.journal = append(e.journal, f)
	}
}

func (e *Engine) setFlow(k key, s *session) {
	old := e.flows[k]
	if s == nil {
		delete(e.flows, k)
	} else {
		e.flows[k] = s
	}
	e.undo(func() {
		if old == nil {
			delete(e.flows, k)
		} else {
			e.flows[k] = old
		}
	})
}

// touch must precede a change of a session.
func (e *Engine) touch(s *session) {
	if e.recording {
		old := *s
		e.undo(func() { *s = old })
	}
}

// addSession makes a session: the reverse direction first, then the packet's direction. It overwrites earlier entries.
func (e *Engine) addSession(k key, m Match) *session {
	now := e.cfg.Now()
	e.seq++
	s := &session{key: k, seq: e.seq, match: m, epoch: e.epoch(k.swIf, directionOf(k.input)), active: now, enqueued: now}
	e.sessions[s] = true
	e.undo(func() { delete(e.sessions, s) })
	if r, ok := k.reverse(); ok {
		e.setFlow(r, s)
	}
	e.setFlow(k, s)
	return s
}

// endSession removes a session's entries, even if they belong to another session by now.
func (e *Engine) endSession(s *session) {
	delete(e.sessions, s)
	e.undo(func() { e.sessions[s] = true })
	e.setFlow(s.key, nil)
	if r, ok := s.key.reverse(); ok {
		e.setFlow(r, nil)
	}
	e.dying++
}

// clear ends the sessions of an interface.
func (e *Engine) clear(swIf uint32) {
	e.endAll(func(s *session) bool { return s.swIf == swIf })
}

// ClearSessions is `clear acl-plugin sessions`.
func (e *Engine) ClearSessions() { e.endAll(func(*session) bool { return true }) }

// endAll ends the sessions of a kind in order of making.
func (e *Engine) endAll(which func(*session) bool) {
	var list []*session
	for s := range e.sessions {
		if which(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *session) int { return int(a.seq) - int(b.seq) })
	for _, s := range list {
		e.endSession(s)
	}
}

// expire ends the sessions that were idle for too long.
func (e *Engine) expire() {
	now := e.cfg.Now()
	if now >= e.sweepAt {
		e.endAll(func(s *session) bool { return now >= e.deadline(s) })
		e.sweepAt = never
		for s := range e.sessions {
			e.sweepAt = min(e.sweepAt, e.deadline(s))
		}
	}
	e.dying = 0
}

// track processes a packet of a session: activity, and for TCP possibly another timeout.
func (e *Engine) track(s *session, p *packet.Packet, d direction) {
	e.touch(s)
	now, before := e.cfg.Now(), s.kind()
	s.active = now
	if p.Proto == model.TCP {
		s.flags[d] |= p.TCPFlags
	}
	if s.kind() != before {
		s.enqueued = now
	}
	e.sweepAt = min(e.sweepAt, e.deadline(s))
}

// stale reports whether the policy of the direction that made the session has changed since. Packets of the other direction are not
// checked.
func (e *Engine) stale(s *session, swIf uint32, d direction) bool {
	now := e.epoch(swIf, d)
	return (now^s.epoch)&epochInput == 0 && now != s.epoch
}

func (e *Engine) sessionRoom() bool {
	return uint32(len(e.sessions))+e.dying+e.cfg.Threads < e.cfg.MaxSessions
}

// recycle ends the TCP connection that has been transient for longest; the next packet can use its place.
func (e *Engine) recycle() {
	var first *session
	since := func(s *session) time.Duration {
		half := e.timeout(tcpTransient) / 2
		if half == 0 {
			return s.enqueued
		}
		return s.enqueued + (e.cfg.Now()-s.enqueued)/half*half
	}
	for s := range e.sessions {
		if s.kind() != tcpTransient {
			continue
		}
		if first == nil || since(s) < since(first) || since(s) == since(first) && s.seq < first.seq {
			first = s
		}
	}
	if first != nil {
		e.endSession(first)
	}
}

// Made returns the number of sessions made so far.
func (e *Engine) Made() uint64 { return e.seq }

// Session is a session for display.
type Session struct {
	SwIf  uint32
	Input bool // the direction of the packet that made it
	Flow  string
	Match Match
}

// Sessions returns all sessions by interface and flow.
func (e *Engine) Sessions() []Session {
	e.expire()
	out := make([]Session, 0, len(e.sessions))
	for s := range e.sessions {
		out = append(out, Session{SwIf: s.swIf, Input: s.input, Flow: s.flow(), Match: s.match})
	}
	slices.SortFunc(out, func(a, b Session) int {
		return strings.Compare(fmt.Sprintf("%08d %s", a.SwIf, a.Flow), fmt.Sprintf("%08d %s", b.SwIf, b.Flow))
	})
	return out
}

func (k key) flow() string {
	proto := strings.ToLower(model.Protocol(k.proto).String())
	switch {
	case k.isICMP():
		return fmt.Sprintf("%s %s -> %s type %d code %d", proto, k.src, k.dst, k.sport, k.dport)
	case k.sport == 0 && k.dport == 0:
		return fmt.Sprintf("%s %s -> %s", proto, k.src, k.dst)
	}
	return fmt.Sprintf("%s %s -> %s", proto, netip.AddrPortFrom(k.src, k.sport), netip.AddrPortFrom(k.dst, k.dport))
}
