package verified

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/test/verified/mutation"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/classes"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/probes"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// prober sends packets of the pods of a simulated node.
type prober struct {
	*testing.T
	node    string
	vpp     *sim.VPP
	objects []model.Object
	state   *dump.State
	reads   int
	sent    []space.Header
}

func newProber(t *testing.T, c *trace.Cluster, node string, objects []model.Object) *prober {
	t.Helper()
	state, err := verify.ReadLists(t.Context(), verify.Config{Dial: c.Sim(node).Dial, Node: node}, objects)
	if err != nil {
		t.Fatal(err)
	}
	return &prober{T: t, node: node, vpp: c.Sim(node), objects: objects, state: state}
}

func (p *prober) finder() *classes.Finder {
	return classes.New(p.objects, map[string]*dump.State{p.node: p.state})
}

// send is what live.Pods does on a real VPP.
func (p *prober) send(_ context.Context, from model.PodID, h space.Header, echo uint16) (*probes.Fate, error) {
	k := packet.Packet{Src: h.Src, Dst: h.Dst, Proto: model.Protocol(h.Protocol), SrcPort: h.SrcPort, DstPort: h.DstPort}
	if k = k.Opening(); k.IsICMP() {
		k.SrcPort, k.DstPort, k.ICMPType, k.ICMPCode, k.ICMPID = 0, 0, uint8(h.SrcPort), uint8(h.DstPort), echo
	}
	p.sent = append(p.sent, h)
	fate := p.vpp.Send(cni.PodInterface(from), k)
	last := fate.Hops[len(fate.Hops)-1]
	f := &probes.Fate{Text: last.Text, Passed: slices.ContainsFunc(fate.Hops, func(h sim.Hop) bool { return h.ACL != nil && h.ACL.Permit }), Denied: len(fate.Out) == 0 && last.ACL != nil, Session: slices.ContainsFunc(fate.Hops, func(h sim.Hop) bool { return h.ACL != nil && h.ACL.Session })}
	for _, o := range fate.Out {
		if o.Origin == sim.Forwarded {
			f.Left = o.Interface
		}
	}
	return f, nil
}

func (p *prober) run(change func(*probes.Config)) ([]verify.Check, int) {
	p.Helper()
	cfg := probes.Config{Node: p.node, For: time.Hour, Send: p.send, Read: func(context.Context) (*classes.Finder, error) {
		p.reads++
		return p.finder(), nil
	}}
	if change != nil {
		change(&cfg)
	}
	checks, sent, err := probes.Run(p.Context(), cfg)
	if err != nil {
		p.Fatal(err)
	}
	return checks, sent
}

// TestProbes lets the pods of random clusters send a packet of each class. None has another fate than policies say, and every rule that a
// packet of these pods can reach decides about one. Then an interface loses lists that were read before: the packets find it wherever a rule of the interface denies.
func TestProbes(t *testing.T) {
	first := oracle.Setting(t, "CONTIV_SEED", 700)
	figures := map[string]int{}
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](6, 3)); seed++ {
		w := generate.NewWorld(seed, generate.AllKinds())
		changes := changesOf(t, w)
		c := start(t, changes, seed)
		for _, name := range c.Nodes() {
			p := newProber(t, c, name, objectsOf(changes))
			p.everyRuleIsReached(figures)
			mark := p.vpp.Snapshot()
			checks, sent := p.run(nil)
			p.vpp.Restore(mark)
			figures["packets"] += sent
			for i := range checks {
				figures[string(checks[i].Verdict)]++
				if d := checks[i].Difference; d != nil {
					t.Errorf("seed %d, %s, %s: %+v", seed, name, checks[i].Pod, *d)
				} else if checks[i].Verdict == verify.Unknown {
					t.Log(seed, name, checks[i].Pod, checks[i].Why)
				}
			}
			p.loseLists(figures)
		}
		c.Close()
	}
	t.Log(figures)
	if figures["equal"] < 3*figures["not compared"] || figures["lost lists found"] == 0 || figures["lost lists found"] < figures["lost lists that a packet shows"] {
		t.Errorf("too little was compared, or lost lists were not found: %v", figures)
	}
}

// everyRuleIsReached compares the rules that decide about the packets of Cover with those of all classes.
func (p *prober) everyRuleIsReached(figures map[string]int) {
	p.Helper()
	f := p.finder()
	rules := func(c *classes.Class) (out []string) {
		out = append(out, fmt.Sprint("from ", c.From.ID, " ", c.Rules[:min(1, len(c.Rules))]))
		if c.To != nil && c.SenderPasses() && len(c.Rules) == 2 {
			out = append(out, fmt.Sprint("to ", c.To.ID, " ", c.Rules[1]))
		}
		return out
	}
	missing := map[string]bool{}
	for _, c := range f.Find() {
		if c.From != nil && (c.To == nil || c.To.ID != c.From.ID) {
			for _, r := range rules(&c) {
				missing[r] = true
			}
		}
	}
	figures["rules"] += len(missing)
	for c := range f.Cover(p.Context(), p.node) {
		for _, r := range rules(&c) {
			delete(missing, r)
		}
	}
	if len(missing) > 0 {
		p.Errorf("%s: no packet for %d rules: %v", p.node, len(missing), slices.Sorted(keys(missing)))
	}
}

// loseLists takes all lists off each pod's interface in turn, after they were read.
func (p *prober) loseLists(figures map[string]int) {
	p.Helper()
	do, stop, err := dump.Open(p.Context(), "", p.vpp.Dial)
	if err != nil {
		p.Fatal(err)
	}
	defer stop()
	set := func(at uint32, lists []uint32, inputs int) {
		if r := do(p.Context(), vpp.Call{Msg: mutation.Attach(uint32(interface_types.InterfaceIndex(at)), lists, uint8(inputs))}); r[0].Err != nil {
			p.Fatal(r[0].Err)
		}
	}
	for at, i := range p.state.Interfaces {
		if len(i.Input) == 0 || !strings.HasPrefix(i.Name, "pod-") {
			continue
		}
		denied := false // of a packet that reaches these lists
		for c := range p.finder().Cover(p.Context(), p.node) {
			denied = denied || c.Doubt == "" && !c.Allowed && (c.To == nil && cni.PodInterface(c.From.ID) == i.Name || c.To != nil && cni.PodInterface(c.To.ID) == i.Name && c.SenderPasses())
		}
		set(at, nil, 0)
		mark := p.vpp.Snapshot()
		checks, _ := p.run(nil)
		p.vpp.Restore(mark)
		set(at, append(slices.Clone(i.Input), i.Output...), len(i.Input))
		found := slices.ContainsFunc(checks, func(c verify.Check) bool { return c.Difference != nil })
		if figures["lists lost"]++; found {
			figures["lost lists found"]++
		}
		if denied {
			if figures["lost lists that a packet shows"]++; !found {
				p.Errorf("%s: the lists of %s are off, and no packet shows it: %+v", p.node, i.Name, checks)
			}
		}
	}
}

// A session that lets a denied packet pass, a pod that cannot send, and the end of the time are said of the pod, and the verdict is not compared.
func TestProbesThatDecideNothing(t *testing.T) {
	said := map[string]bool{}
	for _, seed := range []uint64{700, 701} { // pods of the first one may send anything, those of the second one nothing to the outside
		changes := changesOf(t, generate.NewWorld(seed, generate.AllKinds()))
		c := start(t, changes, seed)
		newProber(t, c, c.Nodes()[0], objectsOf(changes)).decidesNothing(said)
		c.Close()
	}
	for _, want := range []string{"a session of VPP lets it pass", "no namespace", "the time was over after 0 packets", "VPP drops it, and no access list"} {
		if !said[want] {
			t.Errorf("no check says %q", want)
		}
	}
}

// decidesNothing notes what checks say for each reason.
func (p *prober) decidesNothing(said map[string]bool) {
	for want, change := range map[string]func(*probes.Config){
		"a session of VPP lets it pass": func(cfg *probes.Config) {
			cfg.Send = func(ctx context.Context, from model.PodID, h space.Header, echo uint16) (*probes.Fate, error) {
				f, err := p.send(ctx, from, h, echo)
				if f.Denied {
					f = &probes.Fate{Session: true, Left: cni.Uplink, Text: f.Text}
				}
				return f, err
			}
		},
		"no namespace": func(cfg *probes.Config) {
			cfg.Send = func(context.Context, model.PodID, space.Header, uint16) (*probes.Fate, error) {
				return nil, errors.New("no namespace")
			}
		},
		"the time was over after 0 packets": func(cfg *probes.Config) { cfg.For = -1 },
		"VPP drops it, and no access list": func(cfg *probes.Config) {
			cfg.Send = func(ctx context.Context, from model.PodID, h space.Header, echo uint16) (*probes.Fate, error) {
				f, err := p.send(ctx, from, h, echo)
				if f.Left == cni.Uplink {
					f = &probes.Fate{Text: "no neighbour"}
				}
				return f, err
			}
		},
	} {
		checks, _ := p.run(change)
		said[want] = said[want] || slices.ContainsFunc(checks, func(k verify.Check) bool { return k.Verdict == verify.Unknown && strings.Contains(k.Why, want) })
	}
}
