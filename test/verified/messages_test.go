package verified

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/dump"
)

// direction is the packets that leave or reach a pod, or those that reach it from the other pods of its node: they pass the lists of both.
type direction struct {
	iface string
	kind  kind
}

type kind string

const (
	ingress kind = "ingress"
	egress  kind = "egress"
	near    kind = "ingress from pods of the node"
)

// snapshot is what the lists at the interfaces of pods pass after one message.
type snapshot struct {
	message string
	passes  map[direction]space.Set
	rules   map[direction]int
}

// reader looks at the lists of a VPP after each message that changes them.
type reader struct {
	*testing.T
	node      string
	space     *space.Space
	do        dump.Do
	own       map[string][]netip.Prefix // addresses of pods, by interface
	snapshots []snapshot
	tally     *tally
	stop      func() // ends the connection
}

// tally counts directions of a pod's interface during a change, and those in which packets are dropped that pass before and afterwards, by the reasons
// of ADR 32.
type tally struct{ messages, compared, others, large int }

// mostBoth is the number of rules beyond which an interim state is not exact.
const mostBoth = 4096

// TestEveryMessage changes random clusters. After every message to a VPP, the lists at a pod's interface pass no header that they pass neither before nor
// after the change, and each one of the pod's that they pass before and after it.
func TestEveryMessage(t *testing.T) {
	first := oracle.Setting(t, "CONTIV_SEED", 5000)
	var sum tally
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](4, 4)); seed++ {
		w := generate.NewWorld(seed, generate.AllKinds())
		c := start(t, changesOf(t, w), seed)
		rng := rand.New(rand.NewPCG(seed, 4))
		for step := range 4 {
			before := w.Objects()
			if rng.IntN(3) == 0 {
				w.StepServices()
			}
			w.Step()
			list, err := hear.All(generate.Since(before, w.Objects()))
			if err != nil {
				t.Fatal(err)
			}
			all := watchAll(t, c, changesOf(t, w))
			if err := c.Apply(context.Background(), list); err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				c.Sim(o.node).After(nil)
				o.look("the end")
				o.stop()
				o.tally = &sum
				o.compare(fmt.Sprintf("seed %d, step %d, %s", seed, step, o.node))
			}
		}
		c.Close()
	}
	t.Logf("%+v", sum)
	if sum.messages == 0 || sum.compared == 0 {
		t.Error("nothing was compared")
	}
	if most := 2 + sum.compared/200; sum.others > most || sum.large > most {
		t.Errorf("more than %d drops of a kind are excused", most)
	}
}

// watchAll lets readers look at all nodes from now on. Objects are those of the cluster after the change.
func watchAll(t *testing.T, c *trace.Cluster, objects changes) (all []*reader) {
	own := map[string][]netip.Prefix{}
	for _, ch := range objects {
		if pod, ok := ch.Object.(*model.Pod); ok {
			for _, a := range pod.IPs {
				own[cni.PodInterface(pod.ID)] = append(own[cni.PodInterface(pod.ID)], netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	for _, name := range c.Nodes() {
		v := c.Sim(name)
		do, stop, err := dump.Open(context.Background(), "", v.Dial)
		if err != nil {
			t.Fatal(err)
		}
		o := &reader{T: t, node: name, stop: stop, space: space.New(), do: do, own: own}
		o.look("the beginning")
		v.After(func(r sim.Record) {
			if r.Name == "acl_add_replace" || r.Name == "acl_interface_set_acl_list" {
				o.look(r.String())
			}
		})
		all = append(all, o)
	}
	return all
}

// look notes what the lists pass now.
func (o *reader) look(message string) {
	state, err := dump.Read(context.Background(), o.do, nil)
	if err != nil {
		o.Error(err)
		return
	}
	m := snapshot{message, map[direction]space.Set{}, map[direction]int{}}
	for _, i := range state.Interfaces {
		if o.own[i.Name] != nil {
			for k, vector := range map[kind][]uint32{ingress: i.Output, egress: i.Input} {
				d := direction{i.Name, k}
				m.passes[d] = o.passes(state, vector)
				for _, at := range vector {
					m.rules[d] += len(state.Lists[at].Space)
				}
			}
		}
	}
	o.snapshots = append(o.snapshots, m)
}

func (o *reader) passes(state *dump.State, vector []uint32) space.Set {
	s := o.space
	if len(vector) == 0 {
		return s.All()
	}
	var d space.Decisions
	for _, at := range vector {
		d = s.Override(d, s.List(state.Lists[at].Space))
	}
	return s.Where(d, dump.Permit, dump.Reflect)
}

// compare evaluates the lists after each message by those at the beginning and at the end.
func (o *reader) compare(where string) {
	s := o.space
	before, after := o.snapshots[0], o.snapshots[len(o.snapshots)-1]
	o.tally.messages += len(o.snapshots) - 2
	left := verify.Uncompared(s)
	maps.DeleteFunc(before.passes, func(d direction, _ space.Set) bool { _, stays := after.passes[d]; return !stays })
	for _, m := range o.snapshots {
		o.addNear(&m, before)
	}
	for d, b := range before.passes {
		a := after.passes[d]
		o.tally.compared++
		of := s.Destinations(o.own[d.iface]...)
		if d.kind == egress {
			of = s.Sources(o.own[d.iface]...)
		}
		both, either := s.Intersect(of, s.Minus(s.Intersect(a, b), left)), s.Union(a, b, left)
		var dropped space.Set
		for i, m := range o.snapshots {
			p, known := m.passes[d]
			if !known {
				continue // the interface was made or removed
			}
			if h, some := s.Witness(s.Minus(p, either)); some {
				o.Errorf("%s, %+v: %s passes, and neither before nor afterwards, after message %d of %d: %s", where, d, h, i, len(o.snapshots)-2, o.around(i))
				return
			}
			lost := s.Minus(both, p)
			dropped = s.Union(dropped, lost)
			if h, some := s.Witness(s.Intersect(lost, usual(s))); some && !large(d, before, after) {
				o.Errorf("%s, %+v: %s is dropped, and passes before and afterwards, after message %d of %d: %s", where, d, h, i, len(o.snapshots)-2, o.around(i))
				return
			}
		}
		switch {
		case dropped.Empty():
		case s.Intersect(dropped, usual(s)).Empty():
			o.tally.others++
		default:
			o.tally.large++
		}
	}
}

// addNear adds what pods of the node reach of each other, among those that have interfaces before and after the change.
func (o *reader) addNear(m *snapshot, before snapshot) {
	s := o.space
	var sent space.Set
	for d := range before.passes {
		if d.kind == egress {
			sent = s.Union(sent, s.Intersect(m.passes[d], s.Sources(o.own[d.iface]...)))
		}
	}
	for d := range before.passes {
		if d.kind == ingress {
			m.passes[direction{d.iface, near}] = s.Intersect(s.Intersect(m.passes[d], sent), s.Destinations(o.own[d.iface]...))
		}
	}
}

// large reports whether a list is too long for an exact interim state, of a direction or, where several decide, of any.
func large(d direction, snapshots ...snapshot) bool {
	for _, m := range snapshots {
		for at, n := range m.rules {
			if n > mostBoth && (at == d || d.kind == near) {
				return true
			}
		}
	}
	return false
}

// usual is TCP, UDP and ICMP. An interim state may have no rules for other protocols (ADR 32).
func usual(s *space.Space) space.Set {
	return s.Union(space.OfProtocol(s, space.TCP), space.OfProtocol(s, space.UDP), space.OfProtocol(s, space.ICMP), space.OfProtocol(s, space.ICMPv6))
}

func (o *reader) around(i int) (text string) {
	for _, m := range o.snapshots[max(0, i-6):min(len(o.snapshots), i+2)] {
		text += "\n  " + strings.TrimSpace(m.message)
	}
	return text
}
