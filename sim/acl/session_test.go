package acl

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// bench is an engine with a clock, and one interface, 1.
type bench struct {
	*Engine
	t   testing.TB
	now time.Duration
}

func newBench(t testing.TB, cfg Config) *bench {
	b := &bench{t: t}
	cfg.Now = func() time.Duration { return b.now }
	b.Engine = New(cfg)
	return b
}

// acl makes an ACL from rules as text: "permit+reflect tcp 10.0.0.0/8 10.1.0.0/16 80".
func (b *bench) acl(rules ...Rule) uint32 {
	b.t.Helper()
	i, rv := b.AddReplace(None, fmt.Sprintf("acl-%d", len(b.acls)), rules)
	if rv != 0 {
		b.t.Fatalf("acl_add_replace: %d", rv)
	}
	return i
}

func (b *bench) list(in, out []uint32) {
	b.t.Helper()
	if rv := b.SetList(1, len(in), slices.Concat(in, out)); rv != 0 {
		b.t.Fatalf("acl_interface_set_acl_list: %d", rv)
	}
}

// want sends a packet through the input or the output of the interface.
func (b *bench) want(when string, in bool, text, verdict string) {
	b.t.Helper()
	p, err := packet.Parse(text)
	if err != nil {
		b.t.Fatal(err)
	}
	if got := b.Check(&p, 1, in).String(); got != verdict {
		b.t.Errorf("%s: %s: got %q want %q", when, text, got, verdict)
	}
}

func anyRule(a Action, proto uint8) Rule {
	r := Rule{Action: a, Proto: proto, SrcPorts: allPorts, DstPorts: allPorts}
	r.Src, r.Dst = host("10.0.0.1"), host("10.0.0.1")
	r.Src, _ = r.Src.Addr().Prefix(0)
	r.Dst = r.Src
	return r
}

const (
	in, out = true, false
	syn     = "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [S]"
	synAck  = "tcp 10.1.1.3:80 -> 10.1.1.2:4000 [SA]"
	ack     = "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [A]"
	fin     = "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [FA]"
	made    = "acl 0 (acl-0) rule 0 permit+reflect, new session"
	known   = "session of acl 0 (acl-0) rule 0 permit+reflect"
	none    = "no rule of 1 acls matches"
)

func TestReflect(t *testing.T) {
	b := newBench(t, Config{Reclassify: true})
	b.list([]uint32{b.acl(anyRule(Reflect, 6), anyRule(Permit, 17))}, []uint32{b.acl()})
	b.want("nobody asked", out, synAck, none)
	b.want("request", in, syn, made)
	b.want("reply", out, synAck, known)
	b.want("again", in, ack, known)
	b.want("another port", out, "tcp 10.1.1.3:81 -> 10.1.1.2:4000 [SA]", none)
	b.want("permit without reflect", in, "udp 10.1.1.2:1 -> 10.1.1.3:53", "acl 0 (acl-0) rule 1 permit")
	b.want("has no reply", out, "udp 10.1.1.3:53 -> 10.1.1.2:1", none)
	p, _ := packet.Parse(synAck)
	if v := b.Check(&p, 2, out); v.Session {
		t.Errorf("another interface knows the session: %s", v)
	}
}

func TestICMPSessions(t *testing.T) {
	b := newBench(t, Config{})
	b.list([]uint32{b.acl(anyRule(Reflect, 1))}, []uint32{b.acl()})
	b.want("ping", in, "icmp 10.1.1.2 -> 10.1.1.3 echo-request id 7", made)
	b.want("its identifier does not count", out, "icmp 10.1.1.3 -> 10.1.1.2 echo-reply id 9", known)
	b.want("nor is a ping an answer", out, "icmp 10.1.1.3 -> 10.1.1.2 echo-request id 7", none)
	b.want("timestamp", in, "icmp 10.1.1.2 -> 10.1.1.3 type 13 code 0", made)
	b.want("its answer", out, "icmp 10.1.1.3 -> 10.1.1.2 type 14 code 0", known)
	b.want("an error", in, "icmp 10.1.1.2 -> 10.1.1.3 type 3 code 1 about (udp 10.1.1.3:1 -> 10.1.1.2:2)", made)
	b.want("has no answer", out, "icmp 10.1.1.3 -> 10.1.1.2 type 3 code 1 about (udp 10.1.1.2:2 -> 10.1.1.3:1)", none)
}

func TestSCTPHasNoPorts(t *testing.T) {
	b := newBench(t, Config{})
	port := anyRule(Permit, 132)
	port.DstPorts = Range{80, 80}
	b.list([]uint32{b.acl(port)}, nil)
	b.want("a port", in, "sctp 10.1.1.2:1 -> 10.1.1.3:80", none)
	port.DstPorts = Range{0, 80}
	b.list([]uint32{b.acl(port)}, nil)
	b.want("ports from 0", in, "sctp 10.1.1.2:1 -> 10.1.1.3:9999", "acl 0 (acl-1) rule 0 permit")
}

// TestTimeouts: a session lives until VPP, which checks twice per timeout, finds that it was idle for one.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		name    string
		packets []string // in by the direction they go
		idle    time.Duration
		alive   bool
	}{
		{"half open", []string{syn}, 119 * time.Second, true},
		{"half open", []string{syn}, 120 * time.Second, false},
		{"established", []string{syn, synAck, ack}, 24*time.Hour - time.Second, true},
		{"established", []string{syn, synAck, ack}, 24 * time.Hour, false},
		{"no ACK of the client", []string{syn, synAck}, 120 * time.Second, false},
		{"closed by one", []string{syn, synAck, ack, fin}, 120 * time.Second, false},
		{"udp", []string{"udp 10.1.1.2:4000 -> 10.1.1.3:80"}, 599 * time.Second, true},
		{"udp", []string{"udp 10.1.1.2:4000 -> 10.1.1.3:80"}, 600 * time.Second, false},
	} {
		b := newBench(t, Config{})
		b.list([]uint32{b.acl(anyRule(Reflect, 0))}, []uint32{b.acl()})
		for _, text := range c.packets {
			p, _ := packet.Parse(text)
			b.Check(&p, 1, p.DstPort == 80)
		}
		b.now += c.idle
		if alive := len(b.Sessions()) == 1; alive != c.alive {
			t.Errorf("%s after %s: alive %v, want %v", c.name, c.idle, alive, c.alive)
		}
	}
}

// TestLateLook: VPP sees activity between two checks only at the next one, so a session may live for one and a half timeouts.
func TestLateLook(t *testing.T) {
	b := newBench(t, Config{})
	b.list([]uint32{b.acl(anyRule(Reflect, 0))}, nil)
	const udp = "udp 10.1.1.2:4000 -> 10.1.1.3:80"
	b.want("first", in, udp, made)
	b.now = time.Second
	b.want("a second later", in, udp, known)
	b.now = 899 * time.Second
	b.want("898 seconds idle", in, udp, known)
	b.now = 2 * 899 * time.Second
	b.want("899 seconds idle, the look at 1500 was in time", in, udp, made)
}

func TestPolicyChanges(t *testing.T) {
	for _, c := range []struct {
		name          string
		reclassify    bool
		change        func(b *bench, allow, other uint32)
		request       string // after the change
		replyToo      bool
		replyBefore   bool // before another request
		sessionsAfter int
	}{
		{"replace, old sessions", false, revoke, known, true, true, 1},
		{"replace, new epoch", true, revoke, "acl 0 (acl-0) rule 0 deny", false, true, 0},
		{"same members", false, func(b *bench, a, o uint32) { b.list([]uint32{o, a}, []uint32{o}) }, known, true, true, 1},
		{"other members", false, func(b *bench, a, o uint32) { b.list([]uint32{o}, []uint32{o}) }, none, false, false, 0},
		{"other members, new epoch", true, func(b *bench, a, o uint32) { b.list([]uint32{o}, []uint32{o}) }, none, false, true, 0},
		{"no list for a moment", true, func(b *bench, a, o uint32) {
			b.list([]uint32{a}, nil)
			b.list(nil, nil)
			b.list([]uint32{a, o}, []uint32{o})
		}, made, true, false, 1},
		{"the output list only", true, func(b *bench, a, o uint32) { b.list([]uint32{a, o}, nil); b.list([]uint32{a, o}, []uint32{o}) }, made, true, true, 1},
	} {
		b := newBench(t, Config{Reclassify: c.reclassify})
		allow, other := b.acl(anyRule(Reflect, 0)), b.acl()
		b.list([]uint32{allow, other}, []uint32{other})
		b.want(c.name, in, syn, made)
		c.change(b, allow, other)
		reply := func(passes bool) {
			t.Helper()
			p, _ := packet.Parse(synAck)
			if b.OnOutput(1) && b.Check(&p, 1, out).Pass != passes {
				t.Errorf("%s: reply passes %v, want %v", c.name, !passes, passes)
			}
		}
		reply(c.replyBefore)
		b.want(c.name, in, syn, c.request)
		reply(c.replyToo)
		if n := len(b.Sessions()); n != c.sessionsAfter {
			t.Errorf("%s: %d sessions, want %d", c.name, n, c.sessionsAfter)
		}
	}
}

func revoke(b *bench, allow, _ uint32) { b.AddReplace(allow, "acl-0", []Rule{anyRule(Deny, 0)}) }

func TestFullTable(t *testing.T) {
	b := newBench(t, Config{MaxSessions: 4}) // one thread: room for three
	b.list([]uint32{b.acl(anyRule(Reflect, 0))}, nil)
	flow := func(n int) string { return fmt.Sprintf("tcp 10.1.1.2:%d -> 10.1.1.3:80 [S]", n) }
	for n := 1; n <= 3; n++ {
		b.want("room", in, flow(n), made)
	}
	b.want("full", in, flow(4), "acl 0 (acl-0) rule 0 permit+reflect, but too many sessions")
	b.want("the oldest went", in, flow(4), made)
	b.want("full again", in, flow(1), "acl 0 (acl-0) rule 0 permit+reflect, but too many sessions")
	b.want("the third stayed", in, flow(3), known)
	udp := newBench(t, Config{MaxSessions: 3})
	udp.list([]uint32{udp.acl(anyRule(Reflect, 0))}, nil)
	for n := range 2 {
		udp.want("room", in, fmt.Sprintf("udp 10.1.1.2:%d -> 10.1.1.3:80", n+1), made)
	}
	for range 2 {
		udp.want("nothing to recycle", in, "udp 10.1.1.2:9 -> 10.1.1.3:80", "acl 0 (acl-0) rule 0 permit+reflect, but too many sessions")
	}
}

func TestSnapshots(t *testing.T) {
	b := newBench(t, Config{Reclassify: true})
	b.list([]uint32{b.acl(anyRule(Reflect, 0))}, []uint32{b.acl()})
	b.EnableCounters(true)
	b.want("before", in, syn, made)
	text := func() string { return fmt.Sprint(b.Sessions(), b.Hits(0), b.sessionRoom()) }
	before := text()
	m := b.Snapshot()
	b.want("more", in, "udp 10.1.1.2:1 -> 10.1.1.3:2", made)
	b.want("reply", out, synAck, known)
	inner := b.Snapshot()
	b.now += 48 * time.Hour
	b.want("expired", in, syn, made)
	b.now = 0
	b.Restore(inner)
	b.want("as before", in, "udp 10.1.1.2:1 -> 10.1.1.3:2", known)
	b.Restore(m)
	if after := text(); after != before {
		t.Errorf("after Restore: %s, want %s", after, before)
	}
	b.want("still there", in, syn, known)
	b.Release()
	if len(b.journal) != 0 {
		t.Errorf("%d undo steps are kept after Release", len(b.journal))
	}
}

// TestInterfaceGone: the next interface of that number inherits the sessions, and nothing else.
func TestInterfaceGone(t *testing.T) {
	b := newBench(t, Config{Reclassify: true})
	allow, nothing := b.acl(anyRule(Reflect, 0)), b.acl()
	b.list([]uint32{allow}, []uint32{nothing})
	b.want("before", in, syn, made)
	b.InterfaceDeleted(1)
	if b.OnInput(1) || b.OnOutput(1) {
		t.Error("the lists outlive the interface")
	}
	if rv := b.Del(allow); rv != 0 {
		t.Errorf("acl_del: %d", rv)
	}
	b.list(nil, []uint32{nothing})
	b.want("a reply of the old pod's flow", out, synAck, known)
}

// TestFirstOfTheQueueIsRecycled: the first in VPP's queue, which its checks for idle sessions reorder.
func TestFirstOfTheQueueIsRecycled(t *testing.T) {
	b := newBench(t, Config{MaxSessions: 4})
	b.list([]uint32{b.acl(anyRule(Reflect, 0))}, nil)
	flow := func(n int) string { return fmt.Sprintf("tcp 10.1.1.2:%d -> 10.1.1.3:80 [S]", n) }
	for n, at := range []time.Duration{0, 50, 65} {
		b.now = at * time.Second
		b.want("room", in, flow(n), made)
	}
	b.now = 70 * time.Second // the first was checked after 60 seconds, and is now behind the second
	b.want("full", in, flow(9), "acl 0 (acl-0) rule 0 permit+reflect, but too many sessions")
	b.want("the first stayed", in, flow(0), known)
	b.want("the second went", in, flow(1), made)
}

// TestNoRoomForTheSuccessor: a session that ends because of a new policy still counts for the packet that ended it.
func TestNoRoomForTheSuccessor(t *testing.T) {
	b := newBench(t, Config{Reclassify: true, MaxSessions: 2})
	allow := b.acl(anyRule(Reflect, 0))
	b.list([]uint32{allow}, nil)
	b.want("first", in, syn, made)
	b.AddReplace(allow, "acl-0", []Rule{anyRule(Reflect, 6)})
	b.want("new policy", in, ack, "acl 0 (acl-0) rule 0 permit+reflect, but too many sessions")
	b.want("once more", in, ack, made)
}

func TestTCPFlags(t *testing.T) {
	b := newBench(t, Config{})
	r := anyRule(Permit, 6)
	r.TCPMask, r.TCPValue = packet.SYN|packet.ACK, packet.SYN
	odd := anyRule(Deny, 6)
	odd.TCPMask, odd.TCPValue = packet.ACK, packet.ACK|packet.FIN // cannot be
	b.list([]uint32{b.acl(odd, r)}, nil)
	b.want("a SYN", in, syn, "acl 0 (acl-0) rule 1 permit")
	b.want("other flags do not count", in, "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [SPU]", "acl 0 (acl-0) rule 1 permit")
	b.want("a SYN+ACK", in, "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [SA]", none)
	b.want("FIN+ACK", in, fin, none)
}
