package vppagent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/quarantine"
)

// lethal kills the VPP whenever it gets a request whose text has one of the words, before it answers. It returns the number of deaths.
func lethal(v *sim.VPP, words ...string) (deaths func() int) {
	n := 0
	dies := false
	v.After(func(r sim.Record) {
		for _, w := range words {
			dies = dies || strings.Contains(r.Text, w)
		}
		if dies {
			dies = false
			n++
			v.Restart()
		}
	})
	return func() int { return n }
}

// ward returns a ward with a file, as after a start of the agent.
func ward(file string) *quarantine.Ward { return quarantine.New(quarantine.Config{File: file}) }

// survive reconnects and repairs as often as VPP dies, at most n times.
func (l *lab) survive(c *event.Committed, n int) *event.Committed {
	l.t.Helper()
	for range n {
		if c.Err == nil {
			return c
		}
		l.reconnect()
		c = l.txn(event.Full, l.want)
	}
	l.t.Fatalf("VPP dies again and again: %v", c.Err)
	return nil
}

func many(n int) (out []proto.Message) {
	for i := range n {
		out = append(out, dnat(fmt.Sprintf("s%03d", i), fmt.Sprintf("10.96.%d.%d", i/200, 1+i%200), 80, fmt.Sprintf("10.1.1.%d:8080", 2+i%200)))
	}
	return out
}

func state(c *event.Committed, key string) event.ValueStatus {
	for _, s := range c.Statuses {
		if s.Key == key {
			return s
		}
	}
	return event.ValueStatus{}
}

// Two of many values kill VPP. The agent finds both, keeps them out, and serves all others; also after its restart, until they change.
func TestLethalValuesAreKeptOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "quarantine")
	l := newLab(t, vppagent.Config{Quarantine: ward(file)})
	addPod(l, "tap1", "10.1.1.2")
	deaths := lethal(l.sim, "10.96.0.78", "10.96.1.50")
	c := l.survive(l.put(append(node(), many(300)...)...), 10)
	if n := deaths(); n > 5 {
		t.Errorf("VPP died %d times, at most twice for each value, and once before the agent suspects", n)
	}
	bad := map[string]bool{kv.Key(many(300)[77]): true, kv.Key(many(300)[249]): true}
	for _, m := range many(300) {
		key := kv.Key(m)
		if st := state(c, key); bad[key] != (st.State == event.Retrying && strings.HasPrefix(st.Err, "in quarantine: ")) || !bad[key] && st.State != event.Configured {
			t.Errorf("%s", st.Line())
		}
	}
	l.cfg.Quarantine = ward(file)
	l.restartAgent()
	before := deaths()
	if l.survive(l.txn(event.Full, l.want), 1); deaths() != before {
		t.Errorf("after a restart of the agent VPP died again")
	}
	changed := dnat("s077", "10.96.9.9", 80, "10.1.1.79:8080")
	if c = l.put(changed); c.Err != nil || state(c, kv.Key(changed)).State != event.Configured {
		t.Errorf("the changed value is not let in: %s, %v", state(c, kv.Key(changed)).Line(), c.Err)
	}
	l.sim.After(nil) // VPP is mended
	lines := l.cfg.Quarantine.ReleaseAll()
	if len(lines) != 1 || !strings.HasPrefix(lines[0], kv.Key(many(300)[249])) {
		t.Errorf("released %v", lines)
	}
	if c = l.resync(); state(c, kv.Key(many(300)[249])).State != event.Configured {
		t.Errorf("not let in by hand: %s", state(c, kv.Key(many(300)[249])).Line())
	}
}

// A value of several messages, the last of which kills, is found, too: the answers to the others do not acquit it.
func TestTheLastMessageOfAValueKills(t *testing.T) {
	l := newLab(t, vppagent.Config{Quarantine: ward("")})
	three := dnat("three", "10.96.7.1", 80, "10.1.1.2:8080")
	three.StMappings = append(three.StMappings, dnat("", "10.96.7.1", 81, "10.1.1.2:8081").StMappings...)
	three.StMappings = append(three.StMappings, dnat("", "10.96.7.1", 82, "10.1.1.2:8082").StMappings...)
	addPod(l, "tap1", "10.1.1.2")
	deaths := lethal(l.sim, "external_port=82")
	w := l.cfg.Quarantine
	defer func() { // one value alone needs no suspicion first
		w.ReleaseAll()
		l.survive(l.del(kv.Key(three)), 1)
		before := deaths()
		if c := l.survive(l.put(three), 3); deaths() != before+2 || !strings.HasPrefix(state(c, kv.Key(three)).Err, "in quarantine: ") {
			t.Errorf("%d more deaths, %s", deaths()-before, state(c, kv.Key(three)).Line())
		}
	}()
	c := l.survive(l.put(append(append(node(), many(20)...), three)...), 4)
	if st := state(c, kv.Key(three)); deaths() > 3 || !strings.HasPrefix(st.Err, "in quarantine: ") {
		t.Errorf("%d deaths, %s", deaths(), st.Line())
	}
}

// VPP is killed at random requests, whatever they are. No healthy value ends in quarantine, unless both kills met the same one.
func TestRandomKillsKeepNothingOut(t *testing.T) {
	wrong, kills := 0, 0
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 21))
		w := ward("")
		l := newLab(t, vppagent.Config{Quarantine: w})
		c := &event.Committed{}
		l.want = kv.Values{}
		addPod(l, "tap1", "10.1.1.2")
		for _, m := range append(node(), many(100)...) {
			l.want.Put(m)
		}
		for range 4 {
			left := 1 + r.IntN(150)
			l.sim.After(func(sim.Record) {
				if left--; left == 0 {
					kills++
					l.sim.Restart()
				}
			})
			c = l.txn(event.Full, l.want)
			if c.Err != nil {
				l.reconnect()
			}
		}
		l.sim.After(nil)
		l.txn(event.Full, l.want)
		wrong += len(w.ReleaseAll())
	}
	t.Logf("%d kills, %d healthy values in quarantine", kills, wrong)
	if kills < 30 || wrong > 1 {
		t.Errorf("%d kills, %d healthy values in quarantine", kills, wrong)
	}
}

// The end of the agent is no death of VPP.
func TestTheEndOfTheAgentAccusesNobody(t *testing.T) {
	w := ward("")
	ctx, stop := context.WithCancel(t.Context())
	call := w.Around(doer(func(calls []vpp.Call) []vpp.Reply {
		stop()
		return []vpp.Reply{{Err: vpp.ErrDisconnected}}
	}))
	for range 2 {
		call.Do(ctx, vpp.Call{For: "a"})
		_ = w.Lost(vpp.ErrDisconnected)
	}
	if lines := w.ReleaseAll(); len(lines) != 0 {
		t.Errorf("%v", lines)
	}
}

// doer is a caller.
type doer func([]vpp.Call) []vpp.Reply

func (d doer) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply { return d(calls) }

// Only values whose requests had no answer are suspects, suspects are sent alone, and joined calls stay together.
func TestSuspectsAreSentAlone(t *testing.T) {
	w := quarantine.New(quarantine.Config{Now: func() time.Time { return time.Unix(0, 0) }})
	var sent []string
	answered := 100
	call := w.Around(doer(func(calls []vpp.Call) (out []vpp.Reply) {
		group := ""
		for _, c := range calls {
			group += c.For
			r := vpp.Reply{}
			if answered--; answered < 0 {
				r.Err = vpp.ErrDisconnected
			}
			out = append(out, r)
		}
		sent = append(sent, group)
		return out
	}))
	calls := []vpp.Call{{For: "a"}, {For: "b"}, {For: "c", Joined: true}, {For: "d"}, {For: "e"}, {For: "f"}}
	answered = 3
	call.Do(t.Context(), calls...)
	call.Do(t.Context(), calls...) // another group of the same batch: nothing is sent
	_ = w.Lost(vpp.ErrDisconnected)
	w.Acquit("f")
	for range 2 {
		answered = 3
		call.Do(t.Context(), calls...)
		_ = w.Lost(vpp.ErrDisconnected)
	}
	if got := strings.Join(sent, " "); got != "abcdef ab cd ab cd" {
		t.Errorf("sent %q", got)
	}
	if lines := w.ReleaseAll(); len(lines) != 1 || !strings.HasPrefix(lines[0], "d: in quarantine") {
		t.Errorf("%v", lines)
	}
}

// VPP ends once with a value alone, later has it, and ends again with it much later: a value that VPP had is no suspect any more.
func TestAValueThatVPPHadIsAcquitted(t *testing.T) {
	l := newLab(t, vppagent.Config{Quarantine: ward("")})
	addPod(l, "tap1", "10.1.1.2")
	l.allConfigured(l.put(append(node(), many(3)...)...))
	once := dnat("once", "10.96.7.1", 80, "10.1.1.2:8080")
	for range 3 {
		deaths := lethal(l.sim, "external_addr=10.96.7.1")
		if c := l.put(once); c.Err == nil || deaths() != 1 {
			t.Fatalf("VPP lives: %v", c.Err)
		}
		l.sim.After(nil)
		l.reconnect()
		l.allConfigured(l.resync())
		l.allConfigured(l.del(kv.Key(once)))
	}
}
