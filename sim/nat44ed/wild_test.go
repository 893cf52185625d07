package nat44ed

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"pgregory.net/rapid"
)

// For any requests and packets, sensible or not, the engine answers or crashes as VPP does, and its lists remain consistent.
func TestAnyRequestsAndPackets(t *testing.T) {
	sessions := 0
	rapid.Check(t, func(t *rapid.T) {
		l := service(&testing.T{})
		defer func() {
			r := recover()
			if err, ok := r.(error); r != nil && !(ok && errors.As(err, new(*Crash))) {
				panic(r)
			}
			sessions += l.sessions.len()
		}()
		w := wild{l, t}
		l.lb(pad(1), local("10.1.1.3", rapid.Byte().Draw(t, "weight")))
		l.SetSessionLimit(rapid.Uint32Range(1, 20).Draw(t, "sessions"), 0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			w.step()
			w.check()
		}
	})
	if sessions == 0 && !testing.Short() { // fewer checks may have none
		t.Error("no sessions: the test tries too little")
	}
}

type wild struct {
	l *lab
	t *rapid.T
}

func (w wild) addr() netip.Addr {
	return addr(rapid.SampledFrom([]string{"10.1.1.2", "10.1.1.3", vip, "192.168.16.1", "0.0.0.0", "8.8.8.8"}).Draw(w.t, "addr"))
}

func (w wild) port() uint16 {
	return rapid.SampledFrom([]uint16{0, 80, 8080, 4000, 65535}).Draw(w.t, "port")
}

func (w wild) proto() uint8 {
	return rapid.SampledFrom([]uint8{1, 6, 6, 17, 17, 132}).Draw(w.t, "proto")
}
func (w wild) swIf() uint32 { return rapid.Uint32Range(podA, overlay).Draw(w.t, "interface") }
func (w wild) bool() bool   { return rapid.Bool().Draw(w.t, "bool") }
func (w wild) flags() Flags { return Flags(rapid.IntRange(0, 15).Draw(w.t, "flags")) }
func (w wild) vrf() uint32  { return rapid.SampledFrom([]uint32{0, 0, 0, 7, None}).Draw(w.t, "vrf") }

func (w wild) local() Local { return Local{w.addr(), w.port(), rapid.Byte().Draw(w.t, "weight"), 0} }

func (w wild) external() uint32 {
	return rapid.SampledFrom([]uint32{None, None, None, podA, podB}).Draw(w.t, "external interface")
}

func (w wild) step() {
	l := w.l
	switch rapid.IntRange(0, 60).Draw(w.t, "step") {
	case 0:
		l.PluginEnableDisable(w.bool(), PluginConfig{Sessions: 10})
	case 1:
		l.ForwardingEnableDisable(w.bool())
	case 2:
		a := w.addr()
		l.AddDelAddressRange(w.bool(), AddressRange{a, a, w.vrf(), w.flags()})
	case 3:
		l.AddDelInterfaceAddr(w.bool(), w.swIf(), w.flags())
	case 4:
		l.AddDelOutputInterface(w.bool(), w.swIf())
	case 5, 6, 7:
		l.InterfaceAddDelFeature(w.bool(), w.swIf(), w.flags()|Flags(rapid.SampledFrom([]Flags{0, Inside}).Draw(w.t, "role")))
	case 8, 9:
		l.AddDelStaticMapping(w.bool(), StaticMapping{w.addr(), w.addr(), w.port(), w.port(), w.proto(), w.external(), w.vrf(), w.flags(), w.addr(), ""})
	case 10:
		l.AddDelIdentityMapping(w.bool(), IdentityMapping{w.addr(), w.port(), w.proto(), w.external(), w.vrf(), w.flags(), ""})
	case 11, 12:
		m := LBMapping{External: w.addr(), Port: w.port(), Proto: w.proto(), Flags: w.flags(), Affinity: rapid.Uint32Range(0, 5).Draw(w.t, "affinity")}
		for range rapid.IntRange(0, 4).Draw(w.t, "locals") {
			m.Locals = append(m.Locals, w.local())
		}
		l.AddDelLBStaticMapping(w.bool(), m)
	case 13:
		l.LBStaticMappingAddDelLocal(w.bool(), w.addr(), w.port(), w.proto(), w.local())
	case 14:
		p := netip.PrefixFrom(w.addr(), 24)
		l.AddressChanged(w.swIf(), p, w.bool())
	case 15:
		l.InterfaceDeleted(w.swIf())
	case 16:
		l.TableBound(w.swIf(), 0, 7)
	case 17:
		l.AddDelVRFTable(w.bool(), w.vrf())
		l.AddDelVRFRoute(w.bool(), w.vrf(), w.vrf())
	case 18:
		l.DelSession(SessionKey{w.addr(), w.port(), w.addr(), w.port(), w.proto(), 0})
	case 19:
		l.CLISetSessionLimit(rapid.Uint32Range(0, 20).Draw(w.t, "limit"), 0)
	default:
		w.packet()
	}
}

func (w wild) packet() {
	p := packet.Packet{Src: w.addr(), Dst: w.addr(), Proto: model.Protocol(w.proto())}
	switch {
	case p.HasPorts():
		p.SrcPort, p.DstPort = w.port(), w.port()
		if p.Proto == model.TCP {
			p.TCPFlags = rapid.SampledFrom([]uint8{packet.SYN, packet.SYN | packet.ACK, packet.ACK, packet.RST}).Draw(w.t, "flags")
		}
	case p.Proto == model.ICMP && w.bool():
		q := packet.NewUDP(netip.AddrPortFrom(w.addr(), w.port()), netip.AddrPortFrom(w.addr(), w.port()))
		p = q.ICMPError(w.addr(), packet.Unreachable, 1)
	case p.Proto == model.ICMP:
		p = packet.NewPing(w.addr(), w.addr(), w.port())
	}
	w.l.advance(time.Duration(rapid.SampledFrom([]int{0, 1, 500}).Draw(w.t, "seconds")) * time.Second)
	r := w.l.Input(&p, w.swIf(), Meta{})
	if r.Action == Drop && (len(r.Hops) == 0 || r.Hops[len(r.Hops)-1].Text == "") {
		w.t.Fatalf("%s dropped without a reason", p)
	}
	if r.Action == Next {
		w.l.Output(&p, w.swIf(), w.swIf(), Meta{})
	}
}

// check walks the lists of sessions both ways.
func (w wild) check() {
	n := 0
	for list := range w.l.lru {
		prev := None
		for i := w.l.lru[list].head; i != None; i = w.l.sessions.slotAt(i).next {
			s := w.l.sessions.slotAt(i)
			if !w.l.sessions.used[i] || s.prev != prev || s.list != uint8(list) {
				w.t.Fatalf("list %d is broken at session %d", list, i)
			}
			prev = i
			n++
		}
		if w.l.lru[list].tail != prev {
			w.t.Fatalf("list %d ends elsewhere", list)
		}
	}
	if n != w.l.sessions.len() || n != len(w.l.Sessions()) {
		w.t.Fatalf("%d sessions in lists, %d in the pool", n, w.l.sessions.len())
	}
}
