package nat44ed

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (l *lab) advance(d time.Duration) { l.clock += d }

// backend returns the destination of a new flow from the client's port, without the port; "" for none.
func (l *lab) backend(client string, port int) string {
	l.t.Helper()
	to := l.in(podA, fmt.Sprintf("udp %s:%d -> 10.96.0.10:80", client, port))
	if strings.HasPrefix(to, "drop") {
		return ""
	}
	_, to, _ = strings.Cut(to, "-> ")
	a, _, _ := strings.Cut(to, ":")
	return a
}

func sticky(l *lab, locals ...Local) {
	l.t.Helper()
	m := lbMapping(locals...)
	m.Proto, m.Affinity = protoUDP, 5
	l.ok(l.AddDelLBStaticMapping(true, m))
	l.ok(l.SetTimeouts(Timeouts{UDP: 3, TCPEstablished: 7440, TCPTransitory: 240, ICMP: 60}))
}

func delSticky(x Local) func(*lab) int32 {
	return func(l *lab) int32 { return l.LBStaticMappingAddDelLocal(false, addr(vip), 80, protoUDP, x) }
}

func addSticky(x Local) func(*lab) int32 {
	return func(l *lab) int32 { return l.LBStaticMappingAddDelLocal(true, addr(vip), 80, protoUDP, x) }
}

// pinned gives client 10.1.1.9 affinity to the n-th of n+1 or more locals.
func pinned(l *lab, n int) {
	l.SetChoice(func(int) int { return n })
	l.backend("10.1.1.9", 1000)
	l.SetChoice(func(int) int { return 0 })
}

func TestA7StickyWhileAnySessionLives(t *testing.T) {
	l := service(t)
	sticky(l, backA, backB, backC)
	pinned(l, 1)
	for port := 1001; port < 1010; port++ {
		if got := l.backend("10.1.1.9", port); got != "10.1.1.3" {
			t.Errorf("port %d: %s, want 10.1.1.3", port, got)
		}
	}
	if got := l.backend("10.1.1.8", 1000); got != "10.1.1.2" {
		t.Errorf("another client: %s, want its own choice", got)
	}
}

// The clock of affinity begins when the client's last session is freed. VPP frees no idle sessions by itself, and each new session
// frees one.
func TestA7TimerBeginsWithTheLastSession(t *testing.T) {
	l := service(t)
	sticky(l, backA, backB)
	pinned(l, 1)
	l.advance(30 * time.Second)
	if got := l.backend("10.1.1.9", 1001); got != "10.1.1.3" {
		t.Errorf("idle for long, session not freed: %s, want 10.1.1.3", got)
	}
	l.advance(4 * time.Second) // 1001 has timed out
	l.ok(l.DelSession(SessionKey{Addr: addr("10.1.1.9"), Port: 1001, Ext: addr(vip), ExtPort: 80, Proto: protoUDP}))
	l.advance(5 * time.Second)
	if got := l.backend("10.1.1.9", 1002); got != "10.1.1.3" {
		t.Errorf("5 s after the last session: %s, want 10.1.1.3", got)
	}
	l.ok(l.DelSession(SessionKey{Addr: addr("10.1.1.9"), Port: 1002, Ext: addr(vip), ExtPort: 80, Proto: protoUDP}))
	l.advance(5*time.Second + 1)
	if got := l.backend("10.1.1.9", 1003); got != "10.1.1.2" {
		t.Errorf("later: %s, want a new choice", got)
	}
}

// The removed backend's clients stay with it; the next backend in its slot gets them.
func TestA7RemovalKeepsClientsPinned(t *testing.T) {
	l := service(t)
	sticky(l, backA, backB, backC)
	pinned(l, 1)
	run(t, l, []step{{"backend goes", delSticky(backB), OK}})
	if got := l.backend("10.1.1.9", 1001); got != "10.1.1.3" {
		t.Errorf("after removal: %s, want still 10.1.1.3", got)
	}
	run(t, l, []step{{"replacement comes", addSticky(local("10.1.1.7", 1)), OK}})
	if got := l.backend("10.1.1.9", 1002); got != "10.1.1.7" {
		t.Errorf("after replacement: %s, want 10.1.1.7", got)
	}
}

func TestA7AddThenDelLeavesClientsDead(t *testing.T) {
	l := service(t)
	sticky(l, backA, backB, backC)
	pinned(l, 1)
	run(t, l, []step{{"", addSticky(local("10.1.1.7", 1)), OK}, {"", delSticky(backB), OK}})
	if got := l.backend("10.1.1.9", 1001); got != "10.1.1.3" {
		t.Errorf("%s, want the removed 10.1.1.3", got)
	}
}

// Del Z, del X, add Z: Z takes X's slot and clients, and keeps its earlier clients by the freed slot's old content.
func TestA7SlotSwap(t *testing.T) {
	l := service(t)
	sticky(l, backA, backB, backC)
	pinned(l, 1)
	l.SetChoice(func(int) int { return 2 })
	l.backend("10.1.1.8", 1000)
	run(t, l, []step{{"", delSticky(backC), OK}, {"two left: no further", delSticky(backB), Unspecified}})
	run(t, l, []step{{"a fourth", addSticky(local("10.1.1.7", 1)), OK}}) // takes C's slot
	l = service(t)
	sticky(l, backA, backB, backC, local("10.1.1.7", 1))
	pinned(l, 1)
	l.SetChoice(func(int) int { return 2 })
	l.backend("10.1.1.8", 1000)
	run(t, l, []step{{"del Z", delSticky(backC), OK}, {"del X", delSticky(backB), OK}, {"add Z", addSticky(backC), OK}})
	for client, want := range map[string]string{"10.1.1.9": "10.1.1.4", "10.1.1.8": "10.1.1.4"} {
		if got := l.backend(client, 1001); got != want {
			t.Errorf("client %s: %s, want %s", client, got, want)
		}
	}
}

func TestA7DeletingTheMappingForgets(t *testing.T) {
	l := service(t)
	sticky(l, backA, backB)
	pinned(l, 1)
	l.ok(l.AddDelLBStaticMapping(false, with(lbMapping(), func(m *LBMapping) { m.Proto = protoUDP })))
	sticky(l, backA, backB)
	if got := l.backend("10.1.1.9", 1001); got != "10.1.1.2" {
		t.Errorf("%s, want a new choice", got)
	}
}

// A packet that makes no session increments the record's holders and never decrements them.
func TestA7RefusedPacketsPinForEver(t *testing.T) {
	l := service(t)
	l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(backA, backB), func(m *LBMapping) { m.Affinity = 5 })))
	l.SetChoice(func(int) int { return 1 })
	l.want(l.in(podA, "tcp 10.1.1.9:7 -> 10.96.0.10:80 [A]"), "drop: nat44-ed-out2in-slowpath: non-SYN packet try to create session")
	l.SetChoice(func(int) int { return 0 })
	l.advance(time.Hour)
	l.want(l.in(podA, "tcp 10.1.1.9:8 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.9:8 -> 10.1.1.3:8080 [S]")
}

// Only in2out frees a session that timed out when the table is full.
func TestC18Wedge(t *testing.T) {
	l := newLab(t)
	l.ok(l.PluginEnableDisable(true, PluginConfig{Sessions: 4}))
	l.ok(l.ForwardingEnableDisable(true))
	run(t, l, []step{{"", role(true, podA, Inside), OK}, {"", role(true, podA, Outside), OK}, {"", output(true, uplink), OK}})
	l.pool("192.168.16.1", 0)
	l.lb(pad(1), backB)
	for port := 1; port <= 4; port++ {
		l.in(podA, fmt.Sprintf("tcp 10.1.1.2:%d -> 10.96.0.10:80 [S]", port))
	}
	full := "drop: nat44-ed-out2in-slowpath: maximum sessions exceeded"
	l.want(l.in(podA, "tcp 10.1.1.2:5 -> 10.96.0.10:80 [S]"), full)
	l.want(l.out(podA, uplink, "udp 10.1.1.2:5000 -> 8.8.8.8:53"), "drop: nat44-ed-in2out-output-slowpath: maximum sessions exceeded")
	l.advance(24 * time.Hour)
	l.want(l.in(podA, "tcp 10.1.1.2:5 -> 10.96.0.10:80 [S]"), full)
	if got := l.UserSessions(addr("10.1.1.3")); len(got) != 4 || !got[0].TimedOut {
		t.Errorf("sessions %+v, want four that timed out", got)
	}
	// An untranslated packet passes, without a bypass session.
	l.want(l.in(uplink, "udp 8.8.8.8:53 -> 10.1.1.2:7"), "udp 8.8.8.8:53 -> 10.1.1.2:7")
	mark := l.Snapshot()
	for name, c := range map[string]func(){
		"purging by request": func() {
			s := l.UserSessions(addr("10.1.1.3"))[0]
			l.ok(l.DelSession(SessionKey{Addr: s.ExtHost.Addr(), Port: s.ExtHost.Port(), Ext: s.Outside.Addr(), ExtPort: s.Outside.Port(), Proto: s.Proto}))
		},
		"source NAT, which frees one for the limit and one for its session": func() {
			l.want(l.out(podA, uplink, "udp 10.1.1.2:5000 -> 8.8.8.8:53"), "udp 192.168.16.1:5000 -> 8.8.8.8:53")
		},
		"a packet of an old session": func() {
			l.want(l.in(podA, "tcp 10.1.1.2:4 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:4 -> 10.1.1.3:8080 [S]")
		},
	} {
		l.Restore(mark)
		l.want(l.in(podA, "tcp 10.1.1.2:5 -> 10.96.0.10:80 [S]"), full)
		c()
		if got := l.in(podA, "tcp 10.1.1.2:5 -> 10.96.0.10:80 [S]"); got != "tcp 10.1.1.2:5 -> 10.1.1.3:8080 [S]" {
			t.Errorf("%s does not help: %s", name, got)
		}
	}
}

func TestC18SessionLimit(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	run(t, l, []step{
		{"no such VRF", func(l *lab) int32 { return l.SetSessionLimit(1, 9) }, Unspecified},
		{"one session", func(l *lab) int32 { return l.SetSessionLimit(1, 0) }, OK},
	})
	l.want(l.in(podA, "tcp 10.1.1.2:4 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:4 -> 10.1.1.3:8080 [S]")
	l.want(l.in(podA, "tcp 10.1.1.2:5 -> 10.96.0.10:80 [S]"), "drop: nat44-ed-out2in-slowpath: maximum sessions exceeded")
	if got := l.RunningConfig().Sessions; got != 64512 {
		t.Errorf("running config has %d sessions, want what the plugin was enabled with", got)
	}
}

func TestC19Timeouts(t *testing.T) {
	for _, c := range []struct {
		name    string
		open    []string // by podA, or by podB if they begin with the backend
		seconds int
	}{
		{"udp", []string{"udp 10.1.1.2:7 -> 10.96.0.10:80"}, 300},
		{"syn", []string{"tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]"}, 240},
		{"half open", []string{"tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]", "tcp 10.1.1.3:8080 -> 10.1.1.2:7 [SA]"}, 240},
		{"established", []string{"tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]", "tcp 10.1.1.3:8080 -> 10.1.1.2:7 [SA]", "tcp 10.1.1.2:7 -> 10.96.0.10:80 [A]"}, 7440},
		{"fin", []string{"tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]", "tcp 10.1.1.3:8080 -> 10.1.1.2:7 [SA]", "tcp 10.1.1.2:7 -> 10.96.0.10:80 [A]", "tcp 10.1.1.2:7 -> 10.96.0.10:80 [FA]"}, 240},
		{"reset", []string{"tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]", "tcp 10.1.1.3:8080 -> 10.1.1.2:7 [SA]", "tcp 10.1.1.2:7 -> 10.96.0.10:80 [A]", "tcp 10.1.1.3:8080 -> 10.1.1.2:7 [R]"}, 240},
		{"reopened", []string{
			"tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]", "tcp 10.1.1.3:8080 -> 10.1.1.2:7 [SA]", "tcp 10.1.1.2:7 -> 10.96.0.10:80 [A]",
			"tcp 10.1.1.2:7 -> 10.96.0.10:80 [R]",
			"tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]", "tcp 10.1.1.3:8080 -> 10.1.1.2:7 [SA]", "tcp 10.1.1.2:7 -> 10.96.0.10:80 [A]",
		}, 7440},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := service(t)
			l.lb(pad(1), backB)
			l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(pad(1), backB), func(m *LBMapping) { m.Proto = protoUDP })))
			for _, line := range c.open {
				swIf := podA
				if strings.Contains(line, " 10.1.1.3:8080 ->") {
					swIf = podB
				}
				if got := l.in(swIf, line); strings.HasPrefix(got, "drop") {
					t.Fatal(line, got)
				}
			}
			// Replies in an old session are dropped or pass untranslated: only its age decides.
			alive := func() bool { return !l.Sessions()[0].TimedOut }
			l.advance(time.Duration(c.seconds)*time.Second - time.Nanosecond)
			if !alive() {
				t.Errorf("timed out before %d s", c.seconds)
			}
			l.advance(time.Nanosecond)
			if alive() {
				t.Errorf("alive after %d s", c.seconds)
			}
		})
	}
}

func TestC19OldSessionMakesWayForItsOwnFlow(t *testing.T) {
	l := service(t)
	l.lb(backA, backB)
	l.SetChoice(func(int) int { return 0 })
	l.in(podC, "tcp 10.1.1.4:7 -> 10.96.0.10:80 [S]")
	l.SetChoice(func(int) int { return 1 })
	l.want(l.in(podC, "tcp 10.1.1.4:7 -> 10.96.0.10:80 [A]"), "tcp 10.1.1.4:7 -> 10.1.1.2:8080 [A]")
	l.advance(4 * time.Minute)
	l.want(l.in(podC, "tcp 10.1.1.4:7 -> 10.96.0.10:80 [A]"), "drop: nat44-ed-out2in-slowpath: non-SYN packet try to create session")
	l.want(l.in(podC, "tcp 10.1.1.4:7 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.4:7 -> 10.1.1.3:8080 [S]")
}

func (l *lab) sessionsTo(backend string) int {
	n := 0
	for _, s := range l.Sessions() {
		if s.Out2In.RewriteDst.Addr() == addr(backend) {
			n++
		}
	}
	return n
}

func TestC20PurgeScope(t *testing.T) {
	open := func(l *lab, dst, proto, flags string, n int) {
		t.Helper()
		for port := 1; port <= n; port++ {
			if got := l.in(podC, strings.TrimSpace(fmt.Sprintf("%s 10.1.1.4:%d -> %s %s", proto, port, dst, flags))); strings.HasPrefix(got, "drop") {
				t.Fatal(got)
			}
		}
	}
	t.Run("single: one session", func(t *testing.T) {
		l := service(t)
		m := single("10.96.0.11", "10.1.1.2", Out2InOnly)
		l.ok(l.AddDelStaticMapping(true, m))
		open(l, "10.96.0.11:80", "tcp", "[S]", 3)
		l.ok(l.AddDelStaticMapping(false, m))
		if got := l.sessionsTo("10.1.1.2"); got != 2 {
			t.Errorf("%d sessions left, want 2", got)
		}
		l.want(l.in(podC, "tcp 10.1.1.4:3 -> 10.96.0.11:80 [A]"), "tcp 10.1.1.4:3 -> 10.1.1.2:8080 [A]")
	})
	t.Run("address only: all", func(t *testing.T) {
		l := service(t)
		m := StaticMapping{External: addr("10.96.0.11"), Local: addr("10.1.1.2"), ExternalIf: None, Flags: AddrOnly}
		l.ok(l.AddDelStaticMapping(true, m))
		open(l, "10.96.0.11:80", "tcp", "[S]", 3)
		l.ok(l.AddDelStaticMapping(false, m))
		if got := l.sessionsTo("10.1.1.2"); got != 0 {
			t.Errorf("%d sessions left, want 0", got)
		}
	})
	// The backend's sessions of all mappings and protocols, and no others.
	for name, remove := range map[string]func(*lab) int32{
		"del_local": delLocal(backB), "delete": del(lbMapping()),
	} {
		t.Run("load balancing, "+name, func(t *testing.T) {
			l := service(t)
			l.lb(pad(1), pad(2), backB)
			other := func(m *LBMapping) { m.External = addr("10.96.0.11") }
			l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(pad(1), pad(2), backB), other)))
			l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(pad(1), pad(2), backB), func(m *LBMapping) { m.Proto = protoUDP })))
			l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(pad(1), backC), func(m *LBMapping) { m.External = addr("10.96.0.12") })))
			m := single("10.96.0.13", "10.1.1.3", Out2InOnly)
			l.ok(l.AddDelStaticMapping(true, m))
			open(l, "10.96.0.10:80", "tcp", "[S]", 3)
			open(l, "10.96.0.11:80", "tcp", "[S]", 3)
			open(l, "10.96.0.10:80", "udp", "", 3)
			open(l, "10.96.0.12:80", "tcp", "[S]", 3)
			open(l, "10.96.0.13:80", "tcp", "[S]", 3)
			l.ok(remove(l))
			if b, c := l.sessionsTo("10.1.1.3"), l.sessionsTo("10.1.1.4"); b != 3 || c != 3 {
				t.Errorf("%d sessions to the backend, want the 3 that are no load balancing's; %d to another, want 3", b, c)
			}
			l.want(l.in(podC, "tcp 10.1.1.4:1 -> 10.96.0.11:80 [A]"), "drop: nat44-ed-out2in-slowpath: non-SYN packet try to create session")
		})
	}
}

func TestC21CLISessionLimitWipesLookups(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
	l.ok(l.CLISetSessionLimit(1000, 0))
	if got := len(l.LBStaticMappings()); got != 1 {
		t.Errorf("%d mappings in the dump, want 1", got)
	}
	l.want(l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
	l.lb(pad(1), backB)
	if got := len(l.LBStaticMappings()); got != 2 {
		t.Errorf("%d mappings after adding it again, want two of the same", got)
	}
}

func TestC23DumpsInVPPsOrder(t *testing.T) {
	l := service(t)
	run(t, l, []step{
		{"", add(lbMapping(backA, backB)), OK},
		{"", addStatic(single("10.96.0.11", "10.1.1.2", Out2InOnly)), OK},
		{"", addStatic(single("10.96.0.12", "10.1.1.2", Out2InOnly)), OK},
		{"", add(with(lbMapping(backA, backB), func(m *LBMapping) { m.Port = 81 })), OK},
		{"", del(lbMapping()), OK},                                        // frees slot 0
		{"", delStatic(single("10.96.0.12", "10.1.1.2", Out2InOnly)), OK}, // frees slot 2, taken first
		{"", add(with(lbMapping(backA, backB), func(m *LBMapping) { m.Port = 82 })), OK},
		{"", addStatic(single("10.96.0.13", "10.1.1.2", Out2InOnly)), OK},
	})
	var statics, lbs []string
	for _, m := range l.StaticMappings() {
		statics = append(statics, m.External.String())
	}
	for _, m := range l.LBStaticMappings() {
		lbs = append(lbs, fmt.Sprint(m.Port))
	}
	if !slices.Equal(statics, []string{"10.96.0.13", "10.96.0.11"}) || !slices.Equal(lbs, []string{"82", "81"}) {
		t.Errorf("static %q, load balancing %q", statics, lbs)
	}
}

func TestUsersAndSessions(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	l.advance(1500 * time.Millisecond)
	l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
	l.in(podB, "tcp 10.1.1.3:7 -> 10.96.0.10:80 [S]")
	l.out(podA, uplink, "udp 10.1.1.2:5000 -> 8.8.8.8:53")
	want := []User{{addr("10.1.1.3"), 0, 0, 2}, {addr("10.1.1.2"), 0, 1, 0}}
	if diff := cmp.Diff(want, l.Users(), cmpAddr); diff != "" {
		t.Error(diff)
	}
	l.advance(1600 * time.Millisecond)
	s := l.UserSessions(addr("10.1.1.3"))
	if len(s) != 2 || s[0].LastHeard != time.Second || s[0].SinceLastHeard != time.Second || s[0].TotalPkts != 1 ||
		s[0].Flags != Static|ExtHostValid || s[1].Flags != Static|ExtHostValid|TwiceNAT || s[1].ExtHostNAT.Addr() != addr("10.2.1.254") {
		t.Errorf("%+v", s)
	}
	run(t, l, []step{
		{"by its inside flow", func(l *lab) int32 {
			return l.DelSession(SessionKey{Addr: addr("10.1.1.3"), Port: 8080, Ext: addr("10.1.1.2"), ExtPort: 7, Proto: protoTCP})
		}, OK},
		{"again", func(l *lab) int32 {
			return l.DelSession(SessionKey{Addr: addr("10.1.1.3"), Port: 8080, Ext: addr("10.1.1.2"), ExtPort: 7, Proto: protoTCP})
		}, NoSuchEntry},
	})
}

// Removing a table's last role ends its sessions when they are next used; VPP's counting bug does so one role early.
func TestSessionsExpireWithTheirTable(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
	l.TableDeleted(0)
	l.want(l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [A]"), "drop: nat44-ed-out2in-slowpath: non-SYN packet try to create session")
}
