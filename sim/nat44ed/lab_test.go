package nat44ed

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// lab is an engine in the surroundings of a VPP: interfaces in table 0 with a /24 each, a default route by the uplink.
type lab struct {
	t testing.TB
	*Engine
	clock  time.Duration
	addrs  map[uint32][]netip.Prefix
	tables map[uint32]uint32 // of interfaces
	locks  map[uint32]int
	routes map[route]bool

	overlay bool // other nodes' pods are behind a separate interface
}

type route struct {
	table uint32
	addr  netip.Addr
	swIf  uint32
}

// The interfaces of a lab.
const (
	podA uint32 = iota + 1
	podB
	podC
	uplink
	overlay
)

func newLab(t testing.TB) *lab {
	l := &lab{
		t: t, locks: map[uint32]int{}, routes: map[route]bool{}, tables: map[uint32]uint32{},
		addrs: map[uint32][]netip.Prefix{
			podA:   {netip.MustParsePrefix("10.1.1.1/32")},
			uplink: {netip.MustParsePrefix("192.168.16.1/24")},
		},
	}
	l.Engine = New(Config{Net: l, FIB: l, Now: func() time.Duration { return l.clock }})
	return l
}

// service returns the agent's usual setup: pods in+out, the uplink with the output feature, forwarding, both pools.
func service(t testing.TB) *lab {
	l := newLab(t)
	l.ok(l.PluginEnableDisable(true, PluginConfig{}))
	l.ok(l.ForwardingEnableDisable(true))
	for _, pod := range []uint32{podA, podB, podC} {
		l.ok(l.InterfaceAddDelFeature(true, pod, Inside))
		l.ok(l.InterfaceAddDelFeature(true, pod, Outside))
	}
	l.ok(l.AddDelOutputInterface(true, uplink))
	l.pool("192.168.16.1", 0)
	l.pool("10.2.1.254", TwiceNAT)
	return l
}

func (l *lab) Table(swIf uint32) uint32         { return l.tables[swIf] }
func (l *lab) HasTable(table uint32) bool       { return table == 0 || l.locks[table] > 0 }
func (l *lab) Addrs(swIf uint32) []netip.Prefix { return l.addrs[swIf] }
func (l *lab) LockTable(table uint32)           { l.locks[table]++ }
func (l *lab) UnlockTable(table uint32)         { l.locks[table]-- }
func (l *lab) Resolve(_ uint32, dst netip.Addr) (uint32, bool) {
	switch dst {
	case addr("10.1.1.2"):
		return podA, true
	case addr("10.1.1.3"):
		return podB, true
	case addr("10.1.1.4"):
		return podC, true
	}
	if l.overlay && netip.MustParsePrefix("10.1.2.0/24").Contains(dst) {
		return overlay, true
	}
	return uplink, true
}

func (l *lab) Receive(table uint32, a netip.Addr, swIf uint32, add bool) {
	r := route{table, a, swIf}
	if l.routes[r] == add {
		l.t.Errorf("receive route %v: %v twice", r, add)
	}
	if add {
		l.routes[r] = true
	} else {
		delete(l.routes, r)
	}
}

func (l *lab) ok(rv int32) {
	l.t.Helper()
	l.rv(rv, OK)
}

func (l *lab) rv(got, want int32) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("retval %d, want %d", got, want)
	}
}

func (l *lab) pool(a string, f Flags) {
	l.t.Helper()
	l.ok(l.AddDelAddressRange(true, AddressRange{First: addr(a), Last: addr(a), VRF: None, Flags: f}))
}

const (
	vip    = "10.96.0.10"
	agents = Out2InOnly | SelfTwiceNAT
)

// lb adds a TCP mapping of VIP:80, or with locals of the given weights.
func (l *lab) lb(locals ...Local) {
	l.t.Helper()
	l.ok(l.AddDelLBStaticMapping(true, lbMapping(locals...)))
}

func lbMapping(locals ...Local) LBMapping {
	return LBMapping{External: addr(vip), Port: 80, Proto: protoTCP, Flags: agents, Locals: locals}
}

func local(a string, weight uint8) Local {
	return Local{Addr: addr(a), Port: 8080, Probability: weight}
}

func pad(n byte) Local {
	return Local{Addr: netip.AddrFrom4([4]byte{192, 0, 2, n}), Port: 1}
}

// in sends a packet in by an interface and returns the result: the packet after translation, or "drop: " and the reason.
func (l *lab) in(swIf uint32, line string) string {
	l.t.Helper()
	p, err := packet.Parse(line)
	if err != nil {
		l.t.Fatal(err)
	}
	return fate(l.Input(&p, swIf, Meta{}), &p)
}

func (l *lab) out(rx, tx uint32, line string) string {
	l.t.Helper()
	p, err := packet.Parse(line)
	if err != nil {
		l.t.Fatal(err)
	}
	return fate(l.Output(&p, rx, tx, Meta{}), &p)
}

// send lets a packet in by an interface, routes it, and returns the output and its interface.
func (l *lab) send(swIf uint32, line string) string {
	l.t.Helper()
	p, err := packet.Parse(line)
	if err != nil {
		l.t.Fatal(err)
	}
	in := l.Input(&p, swIf, Meta{})
	if in.Action != Next {
		return fate(in, &p)
	}
	tx, _ := l.Resolve(0, p.Dst)
	out := l.Output(&p, swIf, tx, Meta{})
	out.BadChecksum = out.BadChecksum || in.BadChecksum
	return fate(out, &p)
}

func fate(r Result, p *packet.Packet) string {
	switch r.Action {
	case Drop:
		return "drop: " + r.Hops[len(r.Hops)-1].Node + ": " + r.Hops[len(r.Hops)-1].Text
	case TimeExceeded:
		return "time exceeded"
	}
	if r.BadChecksum {
		return p.String() + " (bad checksum)"
	}
	return p.String()
}

func (l *lab) want(got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// dies runs f, which must crash VPP.
func (l *lab) dies(f func(), rule string) {
	l.t.Helper()
	defer func() {
		l.t.Helper()
		err, _ := recover().(error)
		var c *Crash
		if !errors.As(err, &c) || c.Rule != rule || l.Crashed() == nil {
			l.t.Errorf("got %v, want a crash by rule %s", err, rule)
		}
	}()
	f()
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
