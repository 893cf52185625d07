package nat44ed

import (
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

const (
	protoICMP = uint8(model.ICMP)
	protoTCP  = uint8(model.TCP)
	protoUDP  = uint8(model.UDP)
	protoICM6 = uint8(58)
)

// tuple is the key of a flow: VPP's 6-tuple with FIB. For ICMP both ports are the identifier.
type tuple struct {
	saddr, daddr uint32
	sport, dport uint16
	fibProto     uint32 // table << 8 | protocol: 24 bits of table, as in VPP
}

func flowKey(saddr uint32, sport uint16, daddr uint32, dport uint16, table uint32, proto uint8) tuple {
	return tuple{saddr, daddr, sport, dport, table<<8 | uint32(proto)}
}

func (t tuple) proto() uint8  { return uint8(t.fibProto) }
func (t tuple) table() uint32 { return t.fibProto >> 8 }

// The fields that a flow rewrites.
const (
	opSaddr uint8 = 1 << iota
	opSport
	opDaddr
	opDport
	opICMPID
	opTable
)

// flow is one direction of a session.
type flow struct {
	ops          uint8
	match        tuple
	saddr, daddr uint32
	sport, dport uint16
	icmpID       uint16
	table        uint32
}

func (f *flow) rewriteSrc(a uint32)   { f.saddr, f.ops = a, f.ops|opSaddr }
func (f *flow) rewriteDst(a uint32)   { f.daddr, f.ops = a, f.ops|opDaddr }
func (f *flow) rewriteTable(t uint32) { f.table, f.ops = t, f.ops|opTable }

// rewriteSrcPort and rewriteDstPort set the ICMP identifier for ICMP.
func (f *flow) rewriteSrcPort(proto uint8, p uint16) {
	if proto == protoICMP {
		f.icmpID, f.ops = p, f.ops|opICMPID
		return
	}
	f.sport, f.ops = p, f.ops|opSport
}

func (f *flow) rewriteDstPort(proto uint8, p uint16) {
	if proto == protoICMP {
		f.icmpID, f.ops = p, f.ops|opICMPID
		return
	}
	f.dport, f.ops = p, f.ops|opDport
}

// fillFromMatch fills the fields that are not rewritten from the match. VPP does it with the checksum deltas, when the flow is hashed.
func (f *flow) fillFromMatch() {
	if f.ops&opSaddr == 0 {
		f.saddr = f.match.saddr
	}
	if f.ops&opDaddr == 0 {
		f.daddr = f.match.daddr
	}
	if f.ops&opSport == 0 {
		f.sport = f.match.sport
	}
	if f.ops&opDport == 0 {
		f.dport = f.match.dport
	}
	if f.ops&opICMPID == 0 {
		f.icmpID = f.match.sport
	}
	if f.ops&opTable == 0 {
		f.table = f.match.table()
	}
}

// Session flags.
const (
	sessStatic uint16 = 1 << iota
	sessLB
	sessTwiceNAT
	sessBypass
	sessAffinity
	sessExactAddress
	sessHairpin
)

type tcpState uint8

const (
	tcpClosed tcpState = iota
	tcpEstablished
	tcpClosing
)

type direction uint8

const (
	in2out direction = iota
	out2in
)

// end is an address and port in a table.
type end struct {
	addr, table uint32
	port        uint16
}

type session struct {
	out2in, in2out end
	proto          uint8
	flags          uint16
	i2o, o2i       flow

	extAddr, extNATAddr uint32 // the outside host, before and after translation of its source
	extPort, extNATPort uint16

	lastHeard, lastLRU time.Duration
	packets            uint32
	bytes              uint64
	tcpFlags           [2]uint8
	tcpState           tcpState
	pair               *vrfPair

	list       uint8 // the LRU list it is in
	prev, next uint32
	epoch      uint32
}

// vrfPair is a pair of tables with sessions; it is expired when NAT no longer uses a table.
type vrfPair struct {
	rx, tx  uint32
	expired bool
}

// register binds the session to its pair of tables. Unused pairs are harmless, so it is not in the journal.
func (e *Engine) register(i uint32) {
	s := e.sessions.slotAt(i)
	rx, tx := s.in2out.table, s.out2in.table
	for _, p := range e.vrfPairs {
		if p.rx == rx && p.tx == tx || p.rx == tx && p.tx == rx {
			s.pair = p
			return
		}
	}
	s.pair = &vrfPair{rx: rx, tx: tx}
	e.vrfPairs = append(e.vrfPairs, s.pair)
}

func (e *Engine) expireTable(table uint32) {
	keep := e.vrfPairs[:0]
	for _, p := range e.vrfPairs {
		if p.rx == table || p.tx == table {
			p.expired = true
			continue
		}
		keep = append(keep, p)
	}
	e.vrfPairs = keep
}

// timeout returns the timeout of a session by protocol and TCP state; other protocols have UDP's.
func (e *Engine) timeout(s *session) time.Duration {
	t := e.timeouts.UDP
	switch s.proto {
	case protoICMP, protoICM6:
		t = e.timeouts.ICMP
	case protoTCP:
		t = e.timeouts.TCPTransitory
		if s.tcpState == tcpEstablished {
			t = e.timeouts.TCPEstablished
		}
	}
	return time.Duration(t) * time.Second
}

// timedOut is the check for a packet: VPP truncates the moment of expiry to whole seconds there.
func (e *Engine) timedOut(s *session) bool {
	return e.now() >= (s.lastHeard + e.timeout(s)).Truncate(time.Second)
}

// Least-recently-used lists, in the order VPP looks for an expired session.
const (
	lruTCPTransitory uint8 = iota
	lruUDP
	lruOther
	lruICMP
	lruTCPEstablished
	lruCount
)

type lruList struct{ head, tail uint32 }

func lruOf(proto uint8) uint8 {
	switch proto {
	case protoUDP:
		return lruUDP
	case protoTCP:
		return lruTCPTransitory
	case protoICMP:
		return lruICMP
	}
	return lruOther
}

func (e *Engine) lruInsert(i uint32, list uint8) {
	l := &e.lru[list]
	s := e.sessions.slotAt(i)
	s.list, s.prev, s.next = list, l.tail, None
	s.lastLRU = e.now()
	if l.tail != None {
		e.touch(l.tail)
		e.sessions.slotAt(l.tail).next = i
	}
	e.setList(list, lruList{head: l.head, tail: i})
	if l.head == None {
		l.head = i
	}
}

func (e *Engine) lruRemove(i uint32) {
	s := e.sessions.slotAt(i)
	l := e.lru[s.list]
	if s.prev != None {
		e.touch(s.prev)
		e.sessions.slotAt(s.prev).next = s.next
	} else {
		l.head = s.next
	}
	if s.next != None {
		e.touch(s.next)
		e.sessions.slotAt(s.next).prev = s.prev
	} else {
		l.tail = s.prev
	}
	e.setList(s.list, l)
}

func (e *Engine) setList(list uint8, l lruList) {
	if e.recording {
		old := e.lru[list]
		e.undo(func() { e.lru[list] = old })
	}
	e.lru[list] = l
}

// lruFreeOne frees the first session at a list's head that has timed out.
func (e *Engine) lruFreeOne() bool {
	for list := range e.lru {
		i := e.lru[list].head
		if i == None {
			continue
		}
		if s := e.sessions.slotAt(i); e.now() >= s.lastHeard+e.timeout(s) {
			e.freeSession(i)
			return true
		}
	}
	return false
}

// allocSession returns a new session of the protocol. It also frees a session that has timed out, even when room is left.
func (e *Engine) allocSession(proto uint8) uint32 {
	e.lruFreeOne()
	i := e.getSession()
	e.touch(i)
	*e.sessions.slotAt(i) = session{epoch: e.epoch}
	e.lruInsert(i, lruOf(proto))
	return i
}

// deleteSession removes a session from the tables. As in VPP, it removes any session that the flow keys point to, even another one.
func (e *Engine) deleteSession(i uint32) {
	e.lruRemove(i)
	e.dropFlows(e.sessions.slotAt(i))
	e.putSession(i)
}

func (e *Engine) dropFlows(s *session) {
	e.delFlow(s.i2o.match)
	e.delFlow(s.o2i.match)
}

// freeSession ends a complete session, and decrements the holders of its affinity record.
func (e *Engine) freeSession(i uint32) {
	s := e.sessions.slotAt(i)
	if s.flags&(sessAffinity|sessBypass) == sessAffinity {
		e.affinityUnlock(affinityKey{s.extAddr, s.out2in.addr, s.out2in.port, s.proto})
	}
	e.deleteSession(i)
}

// addI2O and addO2I hash a flow; an older flow with the same key is overwritten.
func (e *Engine) addI2O(i uint32) {
	s := e.sessions.slotAt(i)
	s.i2o.fillFromMatch()
	e.setFlow(s.i2o.match, i)
}

// addO2I fails for a dynamic session whose outside end is that of a static mapping and, if fresh is set, for a key in use.
func (e *Engine) addO2I(i uint32, fresh bool) bool {
	s := e.sessions.slotAt(i)
	m := &s.o2i.match
	if s.flags&sessStatic == 0 {
		if _, taken := e.smO2I[smKey{m.daddr, m.dport, 0, m.proto()}]; taken {
			return false
		}
	}
	s.o2i.fillFromMatch()
	if _, taken := e.flows[*m]; taken && fresh {
		return false
	}
	e.setFlow(*m, i)
	return true
}

// heard counts a packet.
func (e *Engine) heard(i uint32, bytes int) {
	e.touch(i)
	s := e.sessions.slotAt(i)
	s.lastHeard = e.now()
	s.packets++
	s.bytes += uint64(bytes)
	if s.lastHeard > s.lastLRU+time.Second {
		e.lruRemove(i)
		e.lruInsert(i, s.list)
	}
}

const (
	tcpFIN uint8 = 1
	tcpSYN uint8 = 2
	tcpRST uint8 = 4
	tcpACK uint8 = 16
)

// tcpSeen updates the TCP state: established after SYN and ACK from both sides, closing after a FIN or RST of either.
func (e *Engine) tcpSeen(i uint32, flags uint8, d direction) {
	s := e.sessions.slotAt(i)
	seen := s.tcpFlags[d] | flags&(tcpFIN|tcpSYN|tcpRST|tcpACK)
	if seen == s.tcpFlags[d] {
		return
	}
	e.touch(i)
	s.tcpFlags[d] = seen
	// Exactly these two flags in common: VPP compares, it does not mask.
	handshake := s.tcpFlags[in2out]&s.tcpFlags[out2in] == tcpSYN|tcpACK
	list := lruTCPTransitory
	switch {
	case s.tcpState != tcpEstablished && handshake:
		if s.tcpState == tcpClosing {
			s.packets, s.bytes = 0, 0
		}
		s.tcpState, list = tcpEstablished, lruTCPEstablished
	case s.tcpState == tcpEstablished && seen&(tcpFIN|tcpRST) != 0:
		s.tcpState = tcpClosing
		s.tcpFlags = [2]uint8{}
		s.lastHeard = e.now()
	default:
		return
	}
	e.lruRemove(i)
	e.lruInsert(i, list)
}
