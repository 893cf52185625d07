package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// node is a kernel with a NIC, and a VPP.
type node struct {
	t       *testing.T
	file    string
	now     time.Time
	at      string // which link has the addresses: nic or link
	muted   bool   // the link
	away    string
	unready string
	refuses error // Check
	take    error
	down    bool // the NIC
	fresh   bool // the node was started again: no link to VPP exists yet
	calls   int
	killAt  int  // the call at which the process is killed; 0: never
	done    bool // it is killed when the call is done, not before
	log     bytes.Buffer
}

var errKilled = errors.New("killed")

func (n *node) call(do func()) error {
	n.calls++
	if n.calls != n.killAt || n.done {
		do()
	}
	if n.calls == n.killAt {
		panic(errKilled)
	}
	return nil
}

// dies reports that the process is killed in f.
func dies(f func()) (dead bool) {
	defer func() {
		if r := recover(); r != nil && r != any(errKilled) {
			panic(r)
		} else {
			dead = r != nil
		}
	}()
	f()
	return false
}

func (n *node) Look() ([]byte, error) {
	if n.at != "nic" {
		n.t.Error("it looks at a NIC without addresses, and would forget what it had")
	}
	return []byte(`{"nic":"eth0"}`), n.call(func() {})
}

func (n *node) Deafen() error { return n.call(func() { n.muted = true }) }

func (n *node) Take(record []byte) error {
	if n.take != nil {
		return n.take
	}
	if string(record) != `{"nic":"eth0"}` || !n.muted && n.at == "nic" {
		n.t.Errorf("Take of %s, muted %t", record, n.muted)
	}
	return n.call(func() { n.at, n.muted = "link", false })
}

func (n *node) Release(record []byte) error {
	if string(record) != `{"nic":"eth0"}` {
		n.t.Errorf("Release of %s", record)
	}
	return n.call(func() { n.at, n.muted, n.down = "nic", true, false })
}

func (n *node) Made() bool { return !n.fresh }

func (n *node) Up([]byte) bool { return !n.down }

func (n *node) Holds([]byte) bool { return n.at == "link" }

func newNode(t *testing.T) *node {
	return &node{t: t, file: filepath.Join(t.TempDir(), "nic.json"), now: time.Unix(1000, 0), at: "nic"}
}

func (n *node) start() (*Takeover, error) {
	return New(Config{
		File: n.file, Mover: n, Within: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&n.log, nil)),
		Away: func() string { return n.away }, Unready: func() string { return n.away + n.unready }, Check: func(context.Context) error { return n.refuses },
	}, n.now)
}

func (n *node) agent() *Takeover {
	n.t.Helper()
	t, err := n.start()
	if err != nil {
		n.t.Fatal(err)
	}
	return t
}

// steps lets some time pass, a second a step.
func (n *node) steps(t *Takeover, count int) {
	n.t.Helper()
	for range count {
		if err := t.Step(n.t.Context(), n.now); err != nil {
			n.t.Log(err)
		}
		n.now = n.now.Add(time.Second)
	}
}

func (n *node) wants(t *Takeover, what string, phase Phase, at string) {
	n.t.Helper()
	if t.state.Phase != phase || n.at != at {
		n.t.Errorf("%s: phase %q and the addresses on the %s, want %q and %s", what, t.state.Phase, n.at, phase, at)
	}
}

// TestCommitConfirm: VPP gets the NIC when it is ready, and keeps it if the API server answers.
func TestCommitConfirm(t *testing.T) {
	n := newNode(t)
	n.unready, n.refuses = "the bridge is not made yet", errors.New("no route")
	a := n.agent()
	n.steps(a, 5)
	n.wants(a, "VPP is not ready", Kernel, "nic")
	n.unready = ""
	n.steps(a, 1)
	n.wants(a, "a trial", Trial, "link")
	n.steps(a, 20)
	n.wants(a, "no answer yet", Trial, "link")
	n.refuses = nil
	n.steps(a, 1)
	n.wants(a, "an answer", Taken, "link")
	n.refuses = errors.New("later")
	n.steps(a, 100)
	n.wants(a, "no answer later", Taken, "link")
	if why := a.status() + a.Refusal(); why != "" {
		t.Error(why)
	}
	n.steps(n.agent(), 100)
	n.wants(n.agent(), "a restarted agent", Taken, "link")
}

// TestNoAnswer: the NIC returns in time, and no agent tries again until an administrator removes the file.
func TestNoAnswer(t *testing.T) {
	n := newNode(t)
	n.refuses = errors.New("no route")
	a := n.agent()
	n.steps(a, 30)
	n.wants(a, "29 s", Trial, "link")
	if why := a.Refusal(); why != "" {
		t.Error(why)
	}
	n.steps(a, 2)
	n.wants(a, "31 s", Refused, "nic")
	n.refuses = nil
	n.steps(a, 100)
	n.wants(a, "later", Refused, "nic")
	n.log.Reset()
	first := a.Refusal()
	a = n.agent()
	if said := n.log.String(); !strings.Contains(said, "remove "+n.file+" to try again") {
		t.Errorf("another agent says %q", said)
	}
	for _, why := range []string{first, a.Refusal()} {
		if !strings.Contains(why, "no route") || !strings.Contains(why, "remove "+n.file) {
			t.Errorf("the refusal is %q", why)
		}
	}
	n.steps(a, 100)
	n.wants(a, "another agent", Refused, "nic")
	if why := a.status(); !strings.Contains(why, "has not answered for 30s: no route") || !strings.Contains(why, "remove "+n.file) {
		t.Error(why)
	}
	if finish, err := Settle(n.file, n); err != nil || finish() != nil {
		t.Fatal(err)
	}
	a = n.agent()
	n.steps(a, 2)
	n.wants(a, "after the file was removed", Taken, "link")
	if why := a.Refusal() + (*Takeover)(nil).Refusal(); why != "" {
		t.Error(why)
	}
}

// TestFileLost: without the file nobody knows what the NIC had. The link that has it now must not be removed.
func TestFileLost(t *testing.T) {
	n := newNode(t)
	if finish, err := Settle(n.file, n); err != nil || finish() != nil {
		t.Errorf("a node that never gave its NIC to VPP: %v", err)
	}
	a := n.agent()
	n.steps(a, 3)
	n.wants(a, "3 s", Taken, "link")
	if err := os.Remove(n.file); err != nil {
		t.Fatal(err)
	}
	if _, err := Settle(n.file, n); err == nil || !strings.Contains(err.Error(), n.file+", which says what the NIC had, does not exist") {
		t.Error(err)
	}
}

// TestVPPEnds: the kernel has the NIC at once, and VPP gets it again when it is back; in a trial it does not.
func TestVPPEnds(t *testing.T) {
	n := newNode(t)
	a := n.agent()
	n.steps(a, 3)
	n.away = "gone"
	n.steps(a, 1)
	n.wants(a, "VPP ended", Kernel, "nic")
	n.steps(a, 10)
	n.away = ""
	n.steps(a, 2)
	n.wants(a, "VPP returned", Taken, "link")

	trial := newNode(t)
	trial.refuses = errors.New("no route")
	b := trial.agent()
	trial.steps(b, 3)
	trial.away = "gone"
	trial.steps(b, 1)
	trial.wants(b, "VPP ended in a trial", Refused, "nic")
}

// TestAgentStartsWithoutVPP: an agent that starts waits for VPP for a short time, for the values longer.
func TestAgentStartsWithoutVPP(t *testing.T) {
	for what, change := range map[string]func(*node){"away": func(n *node) { n.away = "away" }, "unready": func(n *node) { n.unready = "unready" }} {
		n := newNode(t)
		n.steps(n.agent(), 3)
		change(n)
		a := n.agent()
		n.steps(a, 2)
		n.wants(a, what, Taken, "link")
		n.steps(a, map[string]int{"away": 1, "unready": 28}[what])
		n.wants(a, what, map[string]Phase{"away": Kernel, "unready": Taken}[what], map[string]string{"away": "nic", "unready": "link"}[what])
		n.steps(a, 3)
		n.wants(a, what, Kernel, "nic")
	}
	n := newNode(t)
	n.steps(n.agent(), 3)
	n.at, n.fresh = "nic", true
	n.unready = "not yet"
	a := n.agent()
	n.fresh = false
	n.wants(a, "a node that was started again", Kernel, "nic")
	n.unready = ""
	n.steps(a, 2)
	n.wants(a, "and again", Taken, "link")
}

// TestTakeFails: what was done of a move is undone.
func TestTakeFails(t *testing.T) {
	n := newNode(t)
	n.take = errors.New("no such link")
	a := n.agent()
	n.steps(a, 1)
	n.wants(a, "Take failed", Refused, "nic")
}

// TestStop: an agent that ends in order gives the NIC back, in a trial and later. VPP of the same pod ends, too. The next agent gives the NIC to VPP again.
func TestStop(t *testing.T) {
	for phase, refuses := range map[Phase]error{Trial: errors.New("no route"), Taken: nil} {
		n := newNode(t)
		n.refuses, n.now = refuses, time.Now()
		a := n.agent()
		n.steps(a, 2)
		n.wants(a, "before the end", phase, "link")
		ctx, stop := context.WithCancel(t.Context())
		stop()
		a.Run(ctx)
		n.wants(a, "stopped", Kernel, "nic")
		n.refuses = nil
		b := n.agent()
		n.wants(b, "the next agent", Kernel, "nic")
		n.steps(b, 2)
		n.wants(b, "the next agent, later", Taken, "link")
	}
}

// TestKilledAnywhere: an agent is killed at any of its calls, in any phase. The next agent has the NIC in the kernel, or in a VPP that carries its
// frames and whose API server had answered.
func TestKilledAnywhere(t *testing.T) {
	for kill := 1; kill < 12; kill++ {
		for _, answers := range []bool{true, false} {
			for variant := range 4 {
				ends := variant&1 != 0
				n := newNode(t)
				n.killAt, n.done = kill, variant&2 != 0
				if !answers {
					n.refuses = errors.New("no route")
				}
				a := n.agent()
				for step := 0; step < 40 && !dies(func() { n.steps(a, 1) }); step++ {
					if ends && step == 3 {
						n.away = "gone"
					}
				}
				n.killAt, n.away = 0, ""
				b, err := n.start()
				if err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("killed at %d (done: %t), the API server answers: %t, VPP ends: %t", kill, n.done, answers, ends)
				if b.state.Phase == Trial || (b.state.Phase == Taken) != (n.at == "link") {
					t.Errorf("%s: phase %q, the addresses on the %s", what, b.state.Phase, n.at)
				}
				n.steps(b, 40)
				want := map[bool]string{true: "link", false: "nic"}[answers && b.state.Phase != Refused]
				if n.at != want {
					t.Errorf("%s: in the end the addresses are on the %s, phase %q", what, n.at, b.state.Phase)
				}
			}
		}
	}
}

// TestNICSetDown: VPP sets the NIC down when it gives it up. The kernel's NIC gets back what it had, in each phase in which the kernel has it.
func TestNICSetDown(t *testing.T) {
	for _, refused := range []bool{false, true} {
		n := newNode(t)
		a := n.agent()
		if refused {
			n.refuses = errors.New("no route")
			n.steps(a, 40)
			n.wants(a, "refused", Refused, "nic")
		} else {
			n.unready = "not yet"
		}
		n.steps(a, 2)
		n.down = true
		n.steps(a, 1)
		if n.down {
			t.Errorf("refused: %t: the NIC stays down", refused)
		}
	}
}

// TestLeave: an agent that does not ask for the NIC gives it back first, watches it while VPP gives it up, and then forgets it.
func TestLeave(t *testing.T) {
	n := newNode(t)
	n.steps(n.agent(), 3)
	n.unready = "the first sync has not ended"
	leave := func() *Takeover {
		t.Helper()
		a, err := New(Config{File: n.file, Mover: n, Leave: true, Logger: slog.New(slog.DiscardHandler), Unready: func() string { return n.unready }}, n.now)
		if err != nil {
			t.Fatal(err)
		}
		n.wants(a, "an agent without the flag", Leaving, "nic")
		return a
	}
	n.steps(leave(), 20)
	a := leave() // it was killed
	n.down = true
	n.steps(a, 1)
	if n.down {
		t.Error("the NIC stays down")
	}
	n.unready = ""
	n.steps(a, 3)
	n.down = true
	n.steps(a, 1)
	if n.down || !Exists(n.file) {
		t.Errorf("down: %t, forgotten: %t", n.down, !Exists(n.file))
	}
	n.steps(a, 10)
	if Exists(n.file) {
		t.Error("it does not forget the NIC")
	}
	n.steps(a, 10)
	n.wants(n.agent(), "later", Kernel, "nic")
}
