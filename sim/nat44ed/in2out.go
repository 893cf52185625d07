package nat44ed

const (
	errOutOfPorts    = "out of ports"
	errICMPType      = "unsupported ICMP type"
	errMaxSessions   = "maximum sessions exceeded"
	errNonSYN        = "non-SYN packet try to create session"
	errNotTranslated = "couldn't translate packet"
	errNoTranslation = "no translation"

	firstUserPort = 1024
	userPorts     = 65536 - firstUserPort
	portAttempts  = 10

	dhcpServerPort = 67
	dhcpClientPort = 68
)

func (w *work) in2outNode(slow bool) string {
	switch {
	case w.output && slow:
		return "nat44-ed-in2out-output-slowpath"
	case w.output:
		return "nat44-ed-in2out-output"
	case slow:
		return "nat44-ed-in2out-slowpath"
	}
	return "nat44-ed-in2out"
}

// in2out is the fast path.
func (w *work) in2out() {
	node := w.in2outNode(false)
	if !w.output && w.expiring(node) {
		return
	}
	if w.output && w.bypassed() {
		w.hop(node, "not translated: forwarding bypass session")
		return
	}
	k, ok := w.lookupKey()
	if !ok {
		w.dropPacket(node, errICMPType)
		return
	}
	i, ok := w.live(node, k)
	if !ok {
		w.in2outSlow()
		return
	}
	s := w.e.sessions.slotAt(i)
	f := &s.i2o
	if s.i2o.match != k {
		if s.flags&sessHairpin == 0 || s.o2i.match != k {
			w.e.freeSession(i)
			w.dropPacket(node, errNotTranslated)
			return
		}
		f = &s.o2i // between two inside hosts both flows arrive here
	}
	w.translate(node, i, f, in2out, true)
}

// translate rewrites the packet by a flow of session i. If that fails and the direction of the node is in2out, it ends the session.
func (w *work) translate(node string, i uint32, f *flow, d direction, account bool) {
	if !w.rewrite(f, d) {
		if d == in2out {
			w.e.freeSession(i)
		}
		w.dropPacket(node, errNotTranslated)
		return
	}
	if account {
		w.account(i, d)
	}
	w.hop(node, w.changed())
}

// in2outSlow makes a session, or decides that the packet is not translated.
func (w *work) in2outSlow() {
	node := w.in2outNode(true)
	if i, ok := w.known(); ok {
		w.translate(node, i, &w.e.sessions.slotAt(i).i2o, in2out, true)
		return
	}
	if w.proto != protoTCP && w.proto != protoUDP && w.proto != protoICMP && w.proto != protoICM6 {
		w.in2outOther(node)
		return
	}
	k := w.icmpKey()
	if why := w.untouched(k.sport, k.dport); why != "" {
		w.hop(node, "not translated: "+why)
		return
	}
	if w.isICMPError() {
		w.dropPacket(node, errICMPType)
		return
	}
	i, ok := w.newIn2Out(node, k.sport, k.dport)
	if !ok {
		return
	}
	w.translate(node, i, &w.e.sessions.slotAt(i).i2o, in2out, true)
}

// untouched returns why a packet without a session passes unchanged; "" if it does not.
func (w *work) untouched(sport, dport uint16) string {
	// For ICMP VPP checks whether the output interface is set, and not the node.
	if w.output || w.proto == protoICMP && w.tx != None {
		return w.untouchedOutput(sport, dport)
	}
	e := w.e
	_, answer := e.flows[w.reverse(e.outsideVRF)]
	if !answer {
		_, answer = e.matchExternal(w.dst, w.dport, w.proto, nil, true)
	}
	switch {
	case answer:
		return ""
	case e.forwarding:
		return "forwarding"
	case e.isInterfaceAddr(w.rx, w.dst):
		return "interface address"
	case e.reachableOutside(w.table, w.dst):
		return ""
	}
	return "destination not outside"
}

// untouchedOutput excludes packets that the input arc has translated: by source, or by destination unless they came by an interface
// that has the output feature.
func (w *work) untouchedOutput(sport, dport uint16) string {
	e := w.e
	if _, ok := e.flows[flowKey(w.src, sport, w.dst, dport, e.net.Table(w.tx), w.proto)]; ok {
		return "source translated already"
	}
	if i, ok := e.flows[flowKey(w.dst, dport, w.src, sport, w.table, w.proto)]; ok {
		_, hairpin := findIface(&e.outIfaces, w.rx)
		if e.sessions.slotAt(i).flags&sessBypass == 0 && !hairpin {
			return "destination translated already"
		}
	}
	if w.proto == protoUDP && w.dport == dhcpServerPort && w.dst == ^uint32(0) {
		return "DHCP"
	}
	return ""
}

// bypassed reports whether the packet belongs to a forwarding-bypass session, which VPP looks up in table 0 only.
func (w *work) bypassed() bool {
	e := w.e
	if !e.forwarding {
		return false
	}
	k := w.icmpKey()
	k.fibProto &= 0xff
	i, ok := e.flows[k]
	if !ok || e.sessions.slotAt(i).flags&sessBypass == 0 {
		return false
	}
	w.account(i, in2out)
	return true
}

// newIn2Out makes the session of an inside host's first packet: by a static mapping of its end, or with a port of the pool. ok is
// false when neither exists; the hop has the reason.
func (w *work) newIn2Out(node string, sport, dport uint16) (i uint32, ok bool) {
	e := w.e
	if e.sessionsExceeded(w.table) && !e.lruFreeOne() {
		w.dropPacket(node, errMaxSessions)
		return 0, false
	}
	m := e.matchLocal(w.src, sport, w.table, w.proto)
	if m != nil && m.flags&smIdentity != 0 {
		w.hop(node, "not translated: identity mapping")
		return 0, false
	}
	if !w.opensTCP() {
		w.dropPacket(node, errNonSYN)
		return 0, false
	}
	i = e.allocSession(w.proto)
	s := e.sessions.slotAt(i)
	tx := e.txTable(w.table, w.dst)
	s.proto = w.proto
	s.in2out = end{addr: w.src, port: sport, table: w.table}
	s.out2in = end{table: tx}
	daddr, hport, hairpin := e.hairpin(w.dst, dport, w.proto)
	if hairpin {
		s.flags |= sessHairpin
	}
	if m != nil {
		ok = w.staticOutside(i, m, daddr, hport)
	} else {
		ok = w.dynamicOutside(i, daddr, hport)
	}
	if !ok {
		e.deleteSession(i)
		why := errOutOfPorts
		if m != nil {
			why = "out2in key add failed"
		}
		w.dropPacket(node, why)
		return 0, false
	}
	s.extAddr, s.extPort = w.dst, dport
	s.i2o = flow{match: flowKey(w.src, sport, w.dst, dport, w.table, w.proto)}
	s.i2o.rewriteSrc(s.out2in.addr)
	s.i2o.rewriteDst(daddr)
	s.i2o.rewriteSrcPort(w.proto, s.out2in.port)
	if w.proto != protoICMP {
		s.i2o.rewriteDstPort(w.proto, hport)
	}
	s.i2o.rewriteTable(tx)
	e.addI2O(i)
	e.register(i)
	return i, true
}

// o2iBack fills the rewrite of the reply's flow: back to the inside host, from the address that it dialled.
func (w *work) o2iBack(s *session, sport uint16) {
	s.o2i.rewriteDst(w.src)
	s.o2i.rewriteDstPort(w.proto, sport)
	s.o2i.rewriteTable(w.table)
	s.o2i.rewriteSrc(w.dst)
}

// staticOutside gives the session the external end of the mapping. It fails if another session has the reply's flow.
func (w *work) staticOutside(i uint32, m *mapping, daddr uint32, dport uint16) bool {
	s := w.e.sessions.slotAt(i)
	s.flags |= sessStatic
	s.out2in.addr, s.out2in.port = m.ext, m.eport
	if m.flags&smAddrOnly != 0 {
		s.out2in.port = s.in2out.port
	}
	if w.proto == protoICMP {
		dport = s.out2in.port
	}
	s.o2i = flow{match: flowKey(daddr, dport, m.ext, s.out2in.port, s.out2in.table, w.proto)}
	w.o2iBack(s, s.in2out.port)
	return w.e.addO2I(i, true)
}

// dynamicOutside gives the session an address and port of the pool: the inside port if it is free and no system port, else one of
// ten random ones.
func (w *work) dynamicOutside(i uint32, daddr uint32, dport uint16) bool {
	e, s := w.e, w.e.sessions.slotAt(i)
	s.o2i = flow{match: flowKey(daddr, dport, daddr, 0, s.out2in.table, w.proto)}
	w.o2iBack(s, s.in2out.port)
	a := e.choosePoolAddr(w.src, w.dst, w.table, w.tx)
	if a == nil {
		return false
	}
	kept := s.o2i.match
	s.o2i.match.daddr = a.addr
	port := s.in2out.port
	if port < firstUserPort {
		port = e.randomPort()
	}
	for range portAttempts {
		if w.proto == protoICMP {
			s.o2i.match.sport = port
		}
		s.o2i.match.dport = port
		if e.addO2I(i, true) {
			s.out2in.addr, s.out2in.port = a.addr, port
			return true
		}
		port = e.randomPort()
	}
	s.o2i.match = kept
	return false
}

// randomPort returns a user port; VPP uses the low half of a random number if that is in range.
func (e *Engine) randomPort() uint16 {
	r := e.rand()
	if low := r & 0xffff; low < userPorts {
		return uint16(firstUserPort + low)
	}
	return uint16(firstUserPort + r%userPorts)
}

// littleEndian returns an address as the number that an x86 machine reads.
func littleEndian(a uint32) uint32 {
	return a>>24 | a>>8&0xff00 | a<<8&0xff0000 | a<<24
}

// choosePoolAddr starts at an offset computed from the source. The order of preference is: an address of the packet's VRF on the
// network of the destination (on the output interface, if any), then one on the output interface, then the last one of the VRF, then
// the last one of no VRF.
func (e *Engine) choosePoolAddr(src, dst, table, tx uint32) *poolAddr {
	n := uint32(len(e.addrs))
	if n == 0 {
		return nil
	}
	v := littleEndian(src)
	offset := (v + v>>8 + v>>16 + v>>24) % n
	var onIf, inVRF, anyVRF *poolAddr
	for k := range n {
		a := &e.addrs[(offset+k)%n]
		switch {
		case a.table == table:
			here := tx == None || a.swIf == tx
			if here && a.bits >= 0 && a.net == dst&maskOf(a.bits) {
				return a
			}
			if here && tx != None {
				onIf = a
			}
			inVRF = a
		case a.table == None:
			anyVRF = a
		}
	}
	switch {
	case onIf != nil:
		return onIf
	case inVRF != nil:
		return inVRF
	}
	return anyVRF
}

// in2outOther translates the source address of protocols without ports known to NAT44-ED (SCTP among them), for one inside host per
// pool address, protocol and destination.
func (w *work) in2outOther(node string) {
	e := w.e
	if e.sessionsExceeded(w.table) {
		w.dropPacket(node, errMaxSessions)
		return
	}
	tx := e.txTable(w.table, w.dst)
	m := e.byLocal(w.src, 0, w.table, w.proto)
	var outside uint32
	if m != nil {
		outside = m.ext
	} else {
		outside = w.outsideForOther(tx)
	}
	if outside == 0 {
		w.dropPacket(node, "no address for this protocol")
		return
	}
	i := e.allocSession(w.proto)
	s := e.sessions.slotAt(i)
	inside, _, hairpin := e.hairpin(w.dst, 0, w.proto)
	if hairpin {
		s.flags |= sessHairpin
	}
	if m != nil {
		s.flags |= sessStatic
	}
	s.i2o = flow{match: flowKey(w.src, 0, w.dst, 0, w.table, w.proto)}
	s.i2o.rewriteSrc(outside)
	s.i2o.rewriteDst(inside)
	s.i2o.rewriteTable(tx)
	s.o2i = flow{match: flowKey(inside, 0, outside, 0, tx, w.proto)}
	s.o2i.rewriteSrc(w.dst)
	s.o2i.rewriteDst(w.src)
	s.o2i.rewriteTable(w.table)
	s.extAddr = w.dst
	// VPP stores 0 as the session's protocol and the number in the ports.
	s.out2in = end{addr: outside, table: tx, port: uint16(w.proto)}
	s.in2out = end{addr: w.src, table: w.table, port: uint16(w.proto)}
	e.addI2O(i)
	if !e.addO2I(i, false) {
		e.deleteSession(i)
		w.dropPacket(node, "out2in flow hash add failed")
		return
	}
	e.register(i)
	e.heard(i, w.length())
	w.translate(node, i, &e.sessions.slotAt(i).i2o, in2out, false)
}

// outsideForOther returns an address whose flow to the destination is free: that of the first session with the destination, or the
// last such one of the pool.
func (w *work) outsideForOther(tx uint32) uint32 {
	e := w.e
	free := func(addr uint32) bool {
		_, taken := e.flows[flowKey(addr, 0, w.dst, 0, tx, w.proto)]
		return !taken
	}
	for i := range e.sessions.usedSlots() {
		if s := e.sessions.slotAt(i); s.extAddr == w.dst {
			if free(s.out2in.addr) && s.out2in.addr != 0 {
				return s.out2in.addr
			}
			break
		}
	}
	var found uint32
	for _, a := range e.addrs {
		if free(a.addr) {
			found = a.addr
		}
	}
	return found
}
