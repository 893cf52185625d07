package realvpp

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/classes"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// classWorlds is the number of clusters of TestVPPClasses.
const classWorlds = 20

// TestVPPClasses grows random clusters with policies on real VPPs, and divides the packets between all pods, and between pods and hosts outside, into
// classes (verify/classes). One packet of each class crosses the real and the simulated VPPs. It arrives if and only if policies allow it, by
// verify/meaning and by the specifications.
func TestVPPClasses(t *testing.T) {
	path := theVPP(t)
	cases, first := oracle.Setting(t, "CONTIV_VPP_CASES", classWorlds), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	c := newCluster(path, agent.Config{})
	c.keep = true
	t.Cleanup(c.close)
	p, start := &policyCase{cluster: c, dir: t.TempDir(), used: map[policy.Flow]bool{}}, time.Now()
	figures := map[string]int{}
	for seed := first; seed < first+cases; seed++ {
		err := p.begin(seed)
		if err == nil {
			err = p.runClasses(t.Context(), figures)
		}
		for _, e := range append(p.differences, err) {
			if e != nil {
				figures["differences"]++
				t.Errorf("seed %d (repeat with CONTIV_VPP_SEED=%d CONTIV_VPP_CASES=1): %v", seed, seed, e)
			}
		}
		if err != nil || figures["differences"] >= enough {
			t.FailNow()
		}
	}
	t.Logf("%d clusters: %v, %s", cases, figures, time.Since(start).Round(time.Second))
	if figures["arrived"] == 0 || figures["dropped"] == 0 || figures["packets looked for in classes"] == 0 {
		t.Error("no packet arrives, or all do, or none was looked for in the classes")
	}
}

// runClasses makes the world's objects those of the cluster, and sends a packet of each class.
func (p *policyCase) runClasses(ctx context.Context, figures map[string]int) error {
	changes, err := p.replaceAll()
	if err == nil {
		err = p.apply(changes)
	}
	if err != nil {
		return err
	}
	if p.law, err = policy.Read(p.world.Objects()); err != nil {
		return err
	}
	objects := slices.Collect(maps.Values(p.objects))
	states := map[string]*dump.State{}
	if err := p.everywhere(func(w *twin) error {
		states[w.node], err = verify.ReadLists(ctx, verify.Config{Socket: w.lab.socket(), Node: w.node}, objects)
		return err
	}); err != nil {
		return err
	}
	f := classes.New(objects, states)
	sent, list := map[space.Header]bool{}, f.Find()
	if err := p.everyPacketHasAClass(f, list, states, figures); err != nil {
		return err
	}
	for _, c := range list {
		figures["classes"]++
		h := f.Packet(&c, p.nextPort())
		reverse := space.Header{Src: h.Dst, Dst: h.Src, Protocol: h.Protocol, SrcPort: h.DstPort, DstPort: h.SrcPort, Flags: h.Flags}
		if sent[reverse] && h.Protocol != space.ICMP && h.Protocol != space.ICMPv6 { // it would be an answer
			if err := p.everywhere(func(w *twin) error { return w.both(&vlib.CliInband{Cmd: "clear acl-plugin sessions"}) }); err != nil {
				return err
			}
			time.Sleep(settle) // VPP removes the sessions later
			figures["sessions cleared"]++
			clear(sent)
		}
		sent[h] = true
		if err := p.tolerate(p.sendClass(&c, h, figures)); err != nil {
			return err
		}
	}
	return nil
}

// everyPacketHasAClass is an error unless each of the world's packets between pods, and between pods and hosts outside, is of one class.
func (p *policyCase) everyPacketHasAClass(f *classes.Finder, list []classes.Class, states map[string]*dump.State, figures map[string]int) error {
	pods, others := map[netip.Addr]string{}, map[netip.Addr]bool{}
	for _, o := range p.objects {
		switch o := o.(type) {
		case *model.Pod:
			for _, a := range o.IPs {
				if _, there := states[o.NodeName].Behind[a]; there {
					pods[a] = o.ID.String()
				} else {
					others[a] = true
				}
			}
		case *model.Node:
			for _, a := range o.Addrs() {
				others[a] = true
			}
		}
	}
	for _, flow := range p.world.Sample(p.world.Flows(1), 300) {
		h := space.Header{Src: flow.Src, Dst: flow.Dst, Protocol: uint8(flow.Proto), SrcPort: flow.SrcPort, DstPort: flow.DstPort}
		known := h.SrcPort > 0 && h.DstPort > 0
		switch h.Protocol {
		case space.TCP:
			h.Flags = 2 // SYN
		case space.UDP:
		case space.ICMP, space.ICMPv6: // an echo request
			h.SrcPort, h.DstPort, known = map[uint8]uint16{space.ICMP: 8, space.ICMPv6: 128}[h.Protocol], 0, true
		default:
			known = false
		}
		if !known || others[h.Src] || others[h.Dst] || pods[h.Src] == pods[h.Dst] {
			continue
		}
		figures["packets looked for in classes"]++
		if n := f.Count(list, h); n != 1 {
			return fmt.Errorf("the packet %+v is of %d classes", h, n)
		}
	}
	return nil
}

// sendClass sends a packet of a class, and compares its fate with what policies say.
func (p *policyCase) sendClass(c *classes.Class, h space.Header, figures map[string]int) error {
	k := packet.Packet{Src: h.Src, Dst: h.Dst, Proto: model.Protocol(h.Protocol), SrcPort: h.SrcPort, DstPort: h.DstPort}
	flow := policy.Flow{Src: h.Src, Dst: h.Dst, Proto: policy.Protocol(h.Protocol), SrcPort: h.SrcPort, DstPort: h.DstPort}
	from, door := place{door: cni.Uplink, addr: h.Src}, cni.Uplink
	if c.To != nil {
		from.node, door = c.To.NodeName, cni.PodInterface(c.To.ID)
	}
	if c.From != nil {
		from.node, from.door = c.From.NodeName, cni.PodInterface(c.From.ID)
	}
	if k = k.Opening(); k.IsICMP() {
		k.SrcPort, k.DstPort = 0, 0
		k.ICMPType, k.ICMPCode, k.ICMPID = uint8(h.SrcPort), uint8(h.DstPort), p.port
		flow.SrcPort, flow.DstPort, flow.Type, flow.Code = 0, 0, k.ICMPType, k.ICMPCode
	}
	flow.Node = from.node
	if c.Doubt != "" {
		figures["not evaluated"]++
		return nil
	}
	j, err := p.travel(from, same(k))
	if err != nil {
		return err
	}
	figures["packets"]++
	if h.Src.Is6() {
		figures["packets of IPv6"]++
	}
	got := j.lost == "" && j.end.door == door && !j.sim.IsICMPError()
	want := p.law.Judge(&flow)
	figures[map[bool]string{true: "arrived", false: "dropped"}[got]]++
	if !got && want.Allowed && p.tooBig(endName(c.From), endName(c.To)) {
		figures["closed, the policies are too big"]++
		return nil
	}
	if got != want.Allowed || got != c.Allowed || got != c.Passes {
		return &wrongVerdict{flow: flow, got: fmt.Sprintf("arrived %v (policies by verify/meaning: %v, lists: %v by %q) %s%s", got, c.Allowed, c.Passes, c.Rules, j.lost, j.way), want: want}
	}
	return nil
}

func endName(p *meaning.Pod) string {
	if p == nil {
		return ""
	}
	return p.ID.String()
}
