package transient_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

const hostDoor = cni.Host

// worlds and faultyWorlds are the numbers of random worlds: CONTIV_CASES, or few by default. CONTIV_SEED repeats one world.
const (
	worlds       = 40
	faultyWorlds = 15
	steps        = 4
)

// TestNoTransientHole changes random clusters, node by node, and checks after every message that each packet that passes
// also passes before or after the node's change.
func TestNoTransientHole(t *testing.T) { grow(t, worlds, false) }

// TestNoTransientHoleWithRefusals is the same while VPP refuses every tenth request.
func TestNoTransientHoleWithRefusals(t *testing.T) { grow(t, faultyWorlds, true) }

// TestOtherAddressOfSCTP: in this world nat44 gives SCTP another address while a mapping is removed, and the lists before the change admit that address. The
// packet is counted, and no other passes.
func TestOtherAddressOfSCTP(t *testing.T) {
	const seed = 846
	var sum tally
	if growOne(t, seed, false, &sum); sum.readdressed.Load() != 1 {
		t.Errorf("seed %d: %d packets of SCTP passed with another address of nat44, want 1", seed, sum.readdressed.Load())
	}
}

// found and faultyFound are worlds beyond those numbers in which the agent once let a packet pass, or dropped one.
var (
	found       = []uint64{60, 140, 230, 242, 136, 297} // read only
	faultyFound = []uint64{31, 106}                     // read only
)

// TestNoHoleWhereOneWas changes the worlds in which holes were found before.
func TestNoHoleWhereOneWas(t *testing.T) {
	var sum tally // its bounds are for many worlds
	for _, seed := range found[:pace.Fewer(len(found), 3)] {
		growOne(t, seed, false, &sum)
	}
	for _, seed := range faultyFound[:pace.Fewer(len(faultyFound), 2)] {
		growOne(t, seed, true, &sum)
	}
	if sum.changes.Load() == 0 {
		t.Error("nothing changed")
	}
}

// tally has the totals of all worlds.
type tally struct {
	changes, messages, looks, lives, listed, overdue, parts, readdressed atomic.Int64
	ledger                                                               ledger
}

func grow(t *testing.T, cases uint64, faults bool) {
	n := oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](cases, 16))
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	var sum tally
	var at atomic.Uint64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := at.Add(1) - 1; i < n && !t.Failed(); i = at.Add(1) - 1 {
				if growOne(t, first+i, faults, &sum); t.Failed() {
					t.Logf("repeat with CONTIV_SEED=%d CONTIV_CASES=1", first+i)
				}
			}
		})
	}
	wait.Wait()
	t.Logf("seeds %d to %d: %d changes of a node, %d messages, %d looks at a packet; %d connections stayed allowed; new pods had lists after %d transactions at most",
		first, first+n-1, sum.changes.Load(), sum.messages.Load(), sum.looks.Load(), sum.lives.Load(), sum.listed.Load())
	if between, most := sum.parts.Load(), max(8, sum.changes.Load()/50); between > most {
		t.Errorf("%d packets passed in states between the parts of updates, more than %d", between, most)
	} else if between > 0 {
		t.Logf("%d packets passed in states between the parts of updates", between)
	}
	if other, most := sum.readdressed.Load(), max(1, sum.changes.Load()/1000); other > most {
		t.Errorf("%d packets of SCTP passed with another address of nat44, more than %d", other, most)
	} else if other > 0 {
		t.Logf("%d packets of SCTP passed with another address of nat44", other)
	}
	if !faults {
		sum.ledger.check(t, sum.changes.Load())
	} else if late, most := sum.overdue.Load(), max(3, sum.changes.Load()/200); late > 0 {
		if t.Logf("%d packets passed after the rest of a change had waited %v for an interim state that VPP refused", late, held); late > most {
			t.Errorf("more than %d", most)
		}
	}
	if sum.messages.Load() == 0 {
		t.Error("no message was sent")
	}
}

// growth is one world that changes.
type growth struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	faults bool
	sum    *tally
	c      *cluster
	port   uint16  // of the last connection that stayed
	lives  []*live // connections that stay
}

func growOne(t *testing.T, seed uint64, faults bool, sum *tally) {
	w := generate.NewWorld(seed, generate.AllKinds())
	c, err := newCluster(balanced(w.Objects(), seed, 0), seed)
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return
	}
	defer c.close()
	g := &growth{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2)), faults: faults, sum: sum, c: c, port: 41000}
	for step := range steps {
		before := balanced(w.Objects(), seed, step)
		asked := probes(w, before)
		g.draw(w)
		after := balanced(w.Objects(), seed, step+1)
		asked = append(asked, probes(w, after)...)
		if !g.step(step, before, after, asked) {
			return
		}
	}
}

// draw changes a Service or other objects, or both at once.
func (g *growth) draw(w *generate.World) {
	kind := g.rng.IntN(8)
	if kind < 3 {
		w.StepServices()
	}
	if kind > 1 {
		w.Step()
	}
}

// step takes every node from some objects to others, one after the other in random order.
func (g *growth) step(step int, before, after []policy.Object, asked []probe) bool {
	list, err := hear.All(generate.Since(before, after))
	if err != nil {
		g.t.Errorf("seed %d step %d: %v", g.seed, step, err)
		return false
	}
	defer g.c.know(list)
	order := slices.Clone(g.c.names)
	g.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for i, name := range order {
		how := manner{node: name, late: g.rng.IntN(3) == 0}
		if g.faults {
			how.faults = g.rng.Uint64() | 1
		}
		if !g.faults {
			g.connections(asked)
		}
		looks, err := g.c.change(how, list, g.newOnes(asked), g.lives)
		if err != nil {
			g.t.Errorf("seed %d step %d: %v", g.seed, step, err)
			return false
		}
		for _, l := range looks {
			g.sum.messages.Add(int64(len(l.messages)))
			g.sum.overdue.Add(int64(l.overdue))
			g.sum.looks.Add(int64(len(l.messages) * len(asked)))
			g.sum.listed.Store(max(g.sum.listed.Load(), int64(l.listed)))
			l.holes = slices.DeleteFunc(l.holes, func(s sighting) bool {
				other := l.readdressed(s)
				if other {
					g.sum.readdressed.Add(1)
				}
				return other
			})
			if !g.faults {
				l.holes = slices.DeleteFunc(l.holes, func(s sighting) bool {
					return l.txns > s.txns+1 && g.betweenParts(order[:i+1], before, list, l.probes[s.probe], s.arrival)
				})
			}
			if len(l.holes) > 0 {
				text, i := l.finding()
				g.report(step, text, l.probes[i], how, before, after)
				return false
			}
			if !g.faults && !g.keep(step, l, how, before, after) {
				return false
			}
		}
		if !g.keepLives(step, looks, how) {
			return false
		}
		g.sum.changes.Add(1)
	}
	return true
}

// betweenParts reports, and counts, a packet before the last transaction that passes because the controller divided the update by namespaces (ADR 19): it
// passes in a state of the objects.
func (g *growth) betweenParts(nodes []string, before []policy.Object, list []event.Change, p probe, a arrival) bool {
	namespaces := map[string]bool{}
	for _, ch := range list {
		namespaces[ch.Ref.Namespace] = true
	}
	for _, ns := range slices.Sorted(maps.Keys(namespaces)) {
		if ns != "" && inParts(g.t, nodes, ns, before, list, p, a, g.seed) {
			g.sum.parts.Add(1)
			return true
		}
	}
	return false
}

// manner is the order in which a node gets a change.
type manner struct {
	node   string
	late   bool   // the agent gets the objects before the interfaces and routes change
	faults uint64 // the seed of VPP's refusals; 0: none
}

func (m manner) String() string {
	return fmt.Sprintf("%s, interfaces after the agent: %v, refusals: %v", m.node, m.late, m.faults != 0)
}

// change takes one node to the new objects, and returns the findings meanwhile.
func (c *cluster) change(how manner, list []event.Change, asked []probe, lives []*live) (looks []*watch, err error) {
	n := c.nodes[how.node]
	gone, dead := goneDoors(list), c.dead(list)
	look := func(fresh []string, do func() error) {
		w := newWatch(c, n, asked, fresh, gone, lives, how.faults != 0)
		w.dead = dead
		for _, l := range looks {
			w.earlier = append(w.earlier, l.messages...)
		}
		looks = append(looks, w)
		if err == nil {
			err = n.unwilling(how.faults, do)
		}
		w.holes = w.end()
	}
	feed := func() error { return n.feed(list) }
	if how.late {
		look(nil, feed)
		feed = func() error { return n.feed(nil) }
	}
	fresh, e := n.plumb(list)
	if e != nil {
		return looks, e
	}
	look(fresh, feed)
	return looks, err
}

// goneDoors returns the interfaces of deleted pods.
func goneDoors(list []event.Change) []string {
	var out []string
	for _, ch := range list {
		if pod, _ := ch.Object.(*model.Pod); ch.Ref.Kind == model.KindPod && (pod == nil || pod.Finished) {
			out = append(out, cni.PodInterface(model.PodID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}))
		}
	}
	return out
}

// dead returns the addresses of deleted pods, which now lead to the uplink.
func (c *cluster) dead(list []event.Change) (out []netip.Addr) {
	for _, ch := range list {
		if pod, _ := ch.Object.(*model.Pod); ch.Ref.Kind == model.KindPod && (pod == nil || pod.Finished) {
			out = append(out, c.pods[ch.Ref]...)
		}
	}
	return out
}

// know records the addresses of pods.
func (c *cluster) know(list []event.Change) {
	for _, ch := range list {
		if pod, _ := ch.Object.(*model.Pod); pod != nil {
			c.pods[ch.Ref] = pod.IPs
		}
	}
}

// plumb makes and removes interfaces and returns the names of the new ones.
func (n *node) plumb(list []event.Change) (fresh []string, err error) {
	had := n.vpp.Interfaces()
	err = n.cni.Apply(list)
	for _, name := range n.vpp.Interfaces() {
		if !slices.Contains(had, name) {
			fresh = append(fresh, name)
		}
	}
	return fresh, err
}

// unwilling runs a function while VPP refuses every tenth request that changes it, and then until all is done.
func (n *node) unwilling(seed uint64, do func() error) error {
	if seed == 0 {
		return do()
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	n.vpp.Fail(func(name string) (int32, bool) {
		if !sim.Writes(name) || rng.IntN(10) > 0 {
			return 0, false
		}
		n.refused = n.refused || strings.HasPrefix(name, "acl_") || strings.HasPrefix(name, "nat44_")
		return -1, false
	})
	err := do()
	for i := 0; i < retries && err == nil; i++ {
		if i == retries/2 {
			n.vpp.Fail(nil)
		}
		n.vpp.Advance(time.Minute)
		err = n.tick()
	}
	return err
}

// retries is how many minutes pass: half of them with refusals, half without.
const retries = 6

func (n *node) tick() error {
	return n.agent.Feed(context.Background(), &event.Tick{Now: n.vpp.Now()})
}

// report prints a finding of a probe, and the smallest change that shows one.
func (g *growth) report(step int, text string, p probe, how manner, before, after []policy.Object) {
	g.t.Errorf("seed %d step %d, %v: %s", g.seed, step, how, text)
	short := func(b, a []policy.Object) string { return findingIn(b, a, how, g.seed, p) }
	if short(before, after) == "" {
		g.t.Errorf("not so in a cluster that was made of the objects before:\n%s\nchanged by\n%s", policy.YAML(before), changed(before, after))
		return
	}
	before, after = shrink(before, after, short)
	g.t.Errorf("in short: %s\nfrom\n%s\nby\n%s", short(before, after), policy.YAML(before), changed(before, after))
}

// findingIn returns the hole or the drop that a probe finds while a cluster changes from the given objects.
func findingIn(before, after []policy.Object, how manner, seed uint64, p probe) string {
	list, err := hear.All(generate.Since(before, after))
	if err != nil {
		return ""
	}
	c, err := newCluster(before, seed)
	if err != nil {
		return ""
	}
	defer c.close()
	if c.nodes[how.node] == nil || c.nodes[p.node] == nil {
		return ""
	}
	looks, err := c.change(how, list, []probe{p}, nil)
	if err != nil {
		return ""
	}
	for _, l := range looks {
		if text, _ := l.finding(); text != "" {
			return text
		}
	}
	return ""
}

// shrink reduces the objects and the change while a hole remains.
func shrink(before, after []policy.Object, hole func(before, after []policy.Object) string) (b, a []policy.Object) {
	changes := generate.Since(before, after)
	before = generate.Shrink(before, func(list []policy.Object) bool { return hole(list, apply(list, changes)) != "" })
	var puts []policy.Object
	var deletes []generate.Change
	for _, c := range changes {
		if c.Object != nil {
			puts = append(puts, c.Object)
		} else {
			deletes = append(deletes, c)
		}
	}
	with := func(deletes []generate.Change, puts []policy.Object) []policy.Object {
		return apply(before, append(slices.Clone(deletes), generate.Since(nil, puts)...))
	}
	for i := len(deletes) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(deletes), i, i+1); hole(before, with(fewer, puts)) != "" {
			deletes = fewer
		}
	}
	puts = generate.Shrink(puts, func(list []policy.Object) bool { return hole(before, with(deletes, list)) != "" })
	return before, with(deletes, puts)
}

// apply returns objects with changes applied.
func apply(objects []policy.Object, changes []generate.Change) []policy.Object {
	gone := map[policy.Key]bool{}
	var out []policy.Object
	for _, c := range changes {
		if gone[c.Key] = true; c.Object != nil {
			out = append(out, c.Object)
		}
	}
	for _, o := range objects {
		if !gone[policy.KeyOf(o)] {
			out = append(out, o)
		}
	}
	policy.Sort(out)
	return out
}

// changed returns a change as text.
func changed(before, after []policy.Object) string {
	var b strings.Builder
	for _, c := range generate.Since(before, after) {
		if c.Object == nil {
			fmt.Fprintf(&b, "--- # delete %s\n", c.Key)
			continue
		}
		b.WriteString(policy.YAML([]policy.Object{c.Object}))
	}
	return b.String()
}
