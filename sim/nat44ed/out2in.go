package nat44ed

import "github.com/contiv-agent/contiv-agent/sim/packet"

const (
	nodeOut2In     = "nat44-ed-out2in"
	nodeOut2InSlow = "nat44-ed-out2in-slowpath"
)

// out2in is the fast path.
func (w *work) out2in() {
	if w.expiring(nodeOut2In) {
		return
	}
	k, ok := w.lookupKey()
	if !ok {
		w.dropPacket(nodeOut2In, errICMPType)
		return
	}
	i, ok := w.live(nodeOut2In, k)
	if !ok {
		w.out2inSlow()
		return
	}
	s := w.e.sessions.slotAt(i)
	switch {
	case s.o2i.match == k:
		w.translate(nodeOut2In, i, &s.o2i, out2in, true)
	case s.flags&sessTwiceNAT != 0:
		w.translate(nodeOut2In, i, &s.i2o, out2in, true)
	case w.dhcpClient():
		w.hop(nodeOut2In, "not translated: DHCP")
	case !w.e.forwarding:
		w.dropPacket(nodeOut2In, errNoTranslation)
	default:
		w.translate(nodeOut2In, i, &s.i2o, out2in, true)
	}
}

func (w *work) dhcpClient() bool { return w.proto == protoUDP && w.dport == dhcpClientPort }

func (w *work) out2inSlow() {
	i, ok := w.known()
	switch {
	case ok:
		w.translate(nodeOut2InSlow, i, &w.e.sessions.slotAt(i).o2i, out2in, true)
		return
	case w.proto == protoICMP:
		w.out2inICMP()
		return
	case w.proto != protoTCP && w.proto != protoUDP && w.proto != protoICM6:
		w.out2inOther()
		return
	}
	e := w.e
	t, ok := e.matchExternal(w.dst, w.dport, w.proto, &w.src, false)
	switch {
	case !ok:
		w.noMapping(w.sport, w.dport)
	case t.m.flags&smIdentity != 0:
		w.hop(nodeOut2InSlow, "not translated: identity mapping")
	case !w.opensTCP():
		w.dropPacket(nodeOut2InSlow, errNonSYN)
	default:
		if i, ok := w.newStatic(t, w.dport, t.m.flags); ok {
			w.translate(nodeOut2InSlow, i, &e.sessions.slotAt(i).o2i, out2in, true)
		}
	}
}

// noMapping handles a packet without a mapping: it is dropped, or with forwarding passes along a bypass session.
func (w *work) noMapping(sport, dport uint16) {
	if w.proto != protoICMP && w.dhcpClient() {
		w.hop(nodeOut2InSlow, "not translated: DHCP")
		return
	}
	if !w.e.forwarding {
		if w.proto == protoICMP && w.e.isInterfaceAddr(w.rx, w.dst) {
			w.hop(nodeOut2InSlow, "not translated: interface address")
			return
		}
		w.dropPacket(nodeOut2InSlow, errNoTranslation)
		return
	}
	if _, ok := w.e.flows[flowKey(w.src, sport, w.dst, dport, w.table, w.proto)]; ok {
		w.hop(nodeOut2InSlow, "next nat44-ed-in2out")
		w.in2out()
		return
	}
	w.hop(nodeOut2InSlow, "not translated: forwarding"+w.bypass())
}

// bypass records a session for a flow that passes untranslated, for the packets in reverse direction. It never fails: without room
// the packet passes nevertheless.
func (w *work) bypass() string {
	e := w.e
	k := w.reverse(w.table)
	if w.proto == protoICMP {
		// VPP swaps the addresses, not the ports.
		q := w.icmpKey()
		k = flowKey(q.daddr, q.sport, q.saddr, q.dport, w.table, q.proto())
	}
	i, ok := e.flows[k]
	if !ok {
		if w.isICMPError() || e.sessionsExceeded(w.table) {
			return ""
		}
		i = e.allocSession(w.proto)
		s := e.sessions.slotAt(i)
		s.flags, s.proto = sessBypass, w.proto
		s.extAddr, s.extPort = w.src, k.dport
		s.out2in = end{addr: w.dst, port: k.sport, table: w.table}
		s.in2out = s.out2in
		s.i2o = flow{match: flowKey(w.dst, k.sport, w.src, k.dport, w.table, w.proto)}
		s.i2o.rewriteTable(w.table)
		e.addI2O(i)
		e.register(i)
	}
	if w.proto == protoTCP {
		e.tcpSeen(i, w.flags, out2in)
	}
	e.heard(i, 0)
	return ", bypass session"
}

// out2inICMP translates echo replies, echo requests for address-only mappings, and nothing else.
func (w *work) out2inICMP() {
	k := w.icmpKey()
	t, ok := w.e.matchExternal(w.dst, k.sport, w.proto, nil, false)
	switch {
	case !ok:
		w.noMapping(k.sport, k.dport)
	case w.icmpType != packet.EchoReply && (w.icmpType != packet.EchoRequest || t.m.flags&smAddrOnly == 0):
		w.dropPacket(nodeOut2InSlow, errICMPType)
	case t.m.flags&smIdentity != 0:
		w.hop(nodeOut2InSlow, "not translated: identity mapping")
	default:
		t.lb, t.affinity = false, false
		if i, ok := w.newStatic(t, k.sport, 0); ok {
			w.translate(nodeOut2InSlow, i, &w.e.sessions.slotAt(i).o2i, out2in, true)
		}
	}
}

// newStatic makes the session of an outside host's first packet to a mapping. Unlike in2out it frees nothing when the table
// is full (vpp.md 3.2 C18). twice is the mapping's flags, 0 to translate the destination only.
func (w *work) newStatic(t target, port uint16, twice uint16) (uint32, bool) {
	e := w.e
	if e.sessionsExceeded(w.table) {
		w.dropPacket(nodeOut2InSlow, errMaxSessions)
		return 0, false
	}
	i := e.allocSession(w.proto)
	s := e.sessions.slotAt(i)
	s.extAddr = w.src
	if w.proto != protoICMP {
		s.extPort = w.sport
	}
	s.flags = sessStatic
	if t.lb {
		s.flags |= sessLB
	}
	if t.affinity {
		s.flags |= sessAffinity
	}
	s.proto = w.proto
	s.out2in = end{addr: w.dst, port: port, table: w.table}
	s.in2out = end{addr: t.addr, port: t.port, table: t.table}
	sport := s.extPort
	if w.proto == protoICMP {
		sport = port
	}
	s.o2i = flow{match: flowKey(w.src, sport, w.dst, port, w.table, w.proto)}
	s.o2i.rewriteDst(t.addr)
	s.o2i.rewriteDstPort(w.proto, t.port)
	s.o2i.rewriteTable(t.table)
	e.addO2I(i, false)
	if twice&smTwice != 0 || twice&smSelfTwice != 0 && w.src == t.addr {
		if !w.twiceNAT(i, t) {
			e.deleteSession(i)
			w.dropPacket(nodeOut2InSlow, errOutOfPorts)
			return 0, false
		}
	} else {
		back := s.extPort
		if w.proto == protoICMP {
			back = t.port
		}
		s.i2o = flow{match: flowKey(t.addr, t.port, w.src, back, t.table, w.proto)}
		s.i2o.rewriteSrc(w.dst)
		s.i2o.rewriteSrcPort(w.proto, port)
		e.addI2O(i)
	}
	e.register(i)
	return i, true
}

// twiceNAT hides the client behind a twice-nat address and a random port. VPP does not check whether the port is in use.
func (w *work) twiceNAT(i uint32, t target) bool {
	e, s := w.e, w.e.sessions.slotAt(i)
	a := e.twiceAddr(t, &s.flags)
	if a == nil {
		return false
	}
	s.flags |= sessTwiceNAT
	s.extNATAddr, s.extNATPort = a.addr, e.randomPort()
	s.o2i.rewriteSrc(s.extNATAddr)
	s.o2i.rewriteSrcPort(w.proto, s.extNATPort)
	s.o2i.fillFromMatch()
	s.i2o = flow{match: flowKey(t.addr, t.port, s.extNATAddr, s.extNATPort, t.table, w.proto)}
	s.i2o.rewriteDst(s.extAddr)
	s.i2o.rewriteDstPort(w.proto, s.extPort)
	s.i2o.rewriteSrc(s.out2in.addr)
	s.i2o.rewriteSrcPort(w.proto, s.out2in.port)
	e.addI2O(i)
	return true
}

// twiceAddr returns the mapping's address if the pool has it, else one of the backend's VRF, else the last of no VRF; the search
// starts at an offset computed from the backend's address.
func (e *Engine) twiceAddr(t target, flags *uint16) *poolAddr {
	if t.m.flags&smExact != 0 {
		for k := range e.twiceAddrs {
			if e.twiceAddrs[k].addr == t.m.poolAddr {
				*flags |= sessExactAddress
				return &e.twiceAddrs[k]
			}
		}
	}
	n := uint32(len(e.twiceAddrs))
	if n == 0 {
		return nil
	}
	offset := littleEndian(t.addr) % n
	var anyVRF *poolAddr
	for k := range n {
		a := &e.twiceAddrs[(offset+k)%n]
		if a.table == t.table {
			return a
		}
		if a.table == None {
			anyVRF = a
		}
	}
	return anyVRF
}

// out2inOther is for protocols without ports known to NAT44-ED, SCTP among them. They match only a mapping of (address, port 0, that
// protocol), which an address-only mapping is not (vpp.md 3.2 A9). Without one they pass if forwarding is on.
func (w *work) out2inOther() {
	e := w.e
	why := errNoTranslation
	var m *mapping
	if e.sessionsExceeded(w.table) {
		why = errMaxSessions
	} else {
		m = e.byExternal(w.dst, 0, w.proto)
	}
	if m == nil {
		if e.forwarding {
			w.hop(nodeOut2InSlow, "not translated: forwarding")
			return
		}
		w.dropPacket(nodeOut2InSlow, why)
		return
	}
	i := e.allocSession(w.proto)
	s := e.sessions.slotAt(i)
	s.extAddr, s.flags = w.src, sessStatic
	s.out2in = end{addr: w.dst, table: w.table, port: uint16(w.proto)}
	s.in2out = end{addr: m.local, table: m.vrf, port: uint16(w.proto)}
	// VPP fills the wrong flow here. The reverse flow has an empty key, and replies do not find the session.
	s.i2o = flow{}
	s.i2o.rewriteSrc(w.dst)
	e.addI2O(i)
	s.o2i = flow{match: flowKey(w.src, 0, w.dst, 0, w.table, w.proto)}
	s.o2i.rewriteDst(m.local)
	s.o2i.rewriteTable(m.vrf)
	e.addO2I(i, false)
	e.register(i)
	e.heard(i, w.length())
	w.translate(nodeOut2InSlow, i, &e.sessions.slotAt(i).o2i, out2in, false)
}
