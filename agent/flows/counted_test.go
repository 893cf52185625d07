package flows

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// script is a VPP whose tables a test changes: places of the table of sessions, and connections that NAT44 lets pass.
type script struct {
	places  []*capture.Session
	passed  map[ends]*sessions.Translated
	made    map[ends]int // how often VPP made an entry for a packet that had none
	counted map[ends]int // how many connections the watcher counted
	w       *Watcher
	random  *rand.Rand
}

func newScript(t *testing.T, number uint64) *script {
	return &script{
		passed: map[ends]*sessions.Translated{}, made: map[ends]int{}, counted: map[ends]int{}, random: rand.New(rand.NewPCG(number, 0)),
		w: New(Config{Node: "node-1", Folder: t.TempDir(), Name: "test", Logger: slog.New(slog.DiscardHandler)}),
	}
}

// connection returns one of n kinds: of IPv4 by the uplink, between pods of the node, or of IPv6.
func connection(n int) capture.Session {
	s := capture.Session{Protocol: 6, SrcPort: uint16(1000 + n), DstPort: 80, Input: true, Src: netip.MustParseAddr("10.1.1.2"), Dst: netip.MustParseAddr("10.2.0.1")}
	switch n % 4 {
	case 0:
		s.Src, s.Dst, s.Input = s.Dst, s.Src, false
	case 2:
		s.Dst = netip.MustParseAddr("10.1.1.3")
	case 3:
		s.Src, s.Dst = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	}
	return s
}

func endsOfSession(s *capture.Session) ends {
	e, _ := endsOf(netip.AddrPortFrom(s.Src, s.SrcPort), netip.AddrPortFrom(s.Dst, s.DstPort), s.Protocol)
	return e
}

// send makes the entries that a packet of connection n needs: a session at the first free place, and one of NAT44 if it passes the uplink.
func (v *script) send(n int) {
	s, made := connection(n), false
	e := endsOfSession(&s)
	if !slices.ContainsFunc(v.places, func(at *capture.Session) bool { return at != nil && endsOfSession(at) == e }) {
		free := slices.Index(v.places, nil)
		if free < 0 {
			v.places, free = append(v.places, nil), len(v.places)
		}
		s.ID, made = fmt.Sprintf("0/%d", free), true
		v.places[free] = &s
	}
	if n%4 < 2 {
		t := v.passed[e]
		if t == nil {
			from, to := netip.AddrPortFrom(s.Src, s.SrcPort), netip.AddrPortFrom(s.Dst, s.DstPort)
			t, made = &sessions.Translated{Protocol: 6, Client: to, Source: to, Dialled: from, Endpoint: from, Inside: to.Addr()}, true
			v.passed[e] = t
		}
		t.Packets++
	}
	if made {
		v.made[e]++
	}
}

// end ends the session, NAT44's entry, or both, of a connection.
func (v *script) end(n int, session, entry bool) {
	s := connection(n)
	e := endsOfSession(&s)
	if session {
		for i, at := range v.places {
			if at != nil && endsOfSession(at) == e {
				v.places[i] = nil
			}
		}
	}
	if entry {
		delete(v.passed, e)
	}
}

// read returns what a read of the tables has: all sessions up to a bound, of more a sample.
func (v *script) read(bound, sample int, nat bool) *tables {
	t := &tables{due: [3]bool{1: true, 2: nat}}
	for _, s := range v.places {
		if s != nil {
			t.sessions = append(t.sessions, *s)
		}
	}
	if len(t.sessions) > bound {
		t.err[1], t.sessions = capture.ErrMany, nil
		for range sample {
			if s := v.places[v.random.IntN(len(v.places))]; s != nil {
				forms := []capture.Session{*s}
				if s.Src.Is6() { // the other form is of what the former session left at the place
					four := *s
					four.Src, four.Dst = netip.MustParseAddr("0.0.0.1"), netip.MustParseAddr("0.0.0.2")
					forms = append(forms, four)
				}
				t.sampled = append(t.sampled, forms)
			}
		}
	}
	for _, p := range v.passed {
		t.nat.Sessions = append(t.nat.Sessions, *p)
	}
	t.nat.Present = uint64(len(t.nat.Sessions))
	return t
}

// note gives a read to the watcher, and counts the connections at the interface that has the session.
func (v *script) note(t *tables) {
	seen := v.w.noteConnections(t)
	if t.due[2] {
		seen = append(seen, v.w.noteTranslated(t)...)
	}
	for i := range seen {
		o := &seen[i]
		e, _ := endsOf(o.source, o.destination, o.protocol)
		if !o.assumed || o.input { // an assumed connection has two observations: one is repeated
			v.counted[e] += int(o.counts.Connections)
		}
	}
}

func (v *script) check(t *testing.T, when string) {
	t.Helper()
	for e, n := range v.counted {
		if n > v.made[e] {
			t.Fatalf("%s: %d connections between %s and %s are counted, and VPP made entries %d times", when, n, e.low, e.high, v.made[e])
		}
	}
}

// While the bound of sessions is passed and passed again, and entries end in one table before the other, no connection is counted twice. In the end all that have a session are
// counted.
func TestNoConnectionIsCountedTwice(t *testing.T) {
	for number := range uint64(pace.Fewer(60, 3)) {
		v := newScript(t, number)
		bound := 30
		for step := range 150 {
			for range v.random.IntN(4) {
				v.send(v.random.IntN(100))
			}
			if n := v.random.IntN(100); v.random.IntN(2) == 0 {
				both := v.random.IntN(3)
				v.end(n, both != 0, both != 1)
			}
			if v.random.IntN(20) == 0 {
				bound = 5 + v.random.IntN(80)
			}
			v.note(v.read(bound, 8, v.random.IntN(3) > 0))
			v.check(t, fmt.Sprintf("script %d, step %d", number, step))
		}
		if v.note(v.read(1000, 0, true)); len(v.counted) == 0 {
			t.Fatal("nothing is counted")
		}
		for _, s := range v.places {
			if s != nil && v.counted[endsOfSession(s)] == 0 {
				t.Errorf("script %d: %+v is not counted; there are %d", number, *s, len(v.counted))
			}
		}
	}
}

// A session that is sampled again is no other connection, however long sampling lasts.
func TestSampledAgain(t *testing.T) {
	v := newScript(t, 1)
	v.w.Sessions = 10
	for n := range 100 {
		v.send(n)
	}
	for range 500 {
		v.note(v.read(10, 8, false))
	}
	if v.check(t, "without NAT44's table"); len(v.counted) != 100 {
		t.Errorf("%d of 100 connections are counted", len(v.counted))
	}
}

// NAT44 forgets a connection of UDP before its session ends, so the session is not counted again; nor is NAT44's entry whose session was counted and has ended.
func TestOneTableForgetsFirst(t *testing.T) {
	for name, session := range map[string]bool{"NAT44": false, "access lists": true} {
		v := newScript(t, 2)
		for n := 0; n < 100; n += 4 {
			v.send(n)
		}
		few, many := 1000, 10
		if !session {
			few, many = many, few
		}
		v.note(v.read(few, 8, true)) // counts all: those of NAT44's table, or sessions
		for n := 0; n < 100; n += 4 {
			v.end(n, session, !session)
		}
		v.note(v.read(few, 8, true))
		v.send(2)
		for n := 202; n < 300; n += 4 {
			v.send(n) // between pods
		}
		v.note(v.read(many, 8, true))
		v.check(t, name)
	}
}

// With flowprobe, NAT44's table adds nothing to connections that NAT44 only lets pass: flowprobe has them, and all their packets.
func TestProbedConnectionsAreNotInNAT44(t *testing.T) {
	v := newScript(t, 3)
	v.w.Probe = &Probe{}
	for n := 0; n < 100; n += 4 {
		v.send(n)
	}
	for range 3 {
		read := v.read(1000, 0, true)
		read.sessions = nil
		if v.note(read); len(v.counted) > 0 {
			t.Fatalf("NAT44 shows %d connections beside flowprobe", len(v.counted))
		}
		v.send(0)
	}
}
