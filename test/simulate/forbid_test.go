package simulate

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// probe is a packet that no version of a round allows.
type probe struct {
	in     string // interface by which it arrives
	out    []string
	packet sim.Packet
	flow   policy.Flow
	why    string
}

// forbidden counts the probes of all nodes, and those that passed because the agent had some objects of one version and some of another, each once in a round.
type forbidden struct{ sent, mixed atomic.Int64 }

// perMessage is how many probes follow each message.
const perMessage = 4

// watch sends probes after each message to a VPP, until unwatch.
func (r *run) watch(versions []int) {
	for _, n := range r.nodes {
		n.heard.begin()
		probes := r.probes(n.name, versions)
		if len(probes) == 0 {
			continue
		}
		next, counted := 0, map[int]bool{}
		n.mixed.Store(false)
		n.sim.After(func(m sim.Record) {
			if n.mixed.Load() || len(n.guard.Load().Held()) > 0 {
				n.mixed.Store(true)
				return
			}
			for range min(perMessage, len(probes)) {
				which := next % len(probes)
				p := probes[which]
				next++
				r.watching.sent.Add(1)
				if at, passes := p.passes(n.sim, 0); passes && r.explains(n.heard, &p.flow, versions) {
					if !counted[which] {
						counted[which] = true
						r.watching.mixed.Add(1)
					}
				} else if passes {
					r.failf("%s leaves %s by %s after %s, and no version of the objects allows it: %s", &p.packet, n.name, at, m, p.why)
				}
			}
		})
	}
}

func (r *run) unwatch() {
	for _, n := range r.nodes {
		n.sim.After(nil)
	}
	r.Packets, r.Mixed = int(r.watching.sent.Load()), int(r.watching.mixed.Load())
}

// passes sends the packet after a pause, without a trace in sessions or in VPP's clock. An INIT of SCTP that passes by the session of an earlier association counts if
// its answer passes as well: the answer ends a session of former policies (ADR 11).
func (p *probe) passes(v *sim.VPP, pause time.Duration) (string, bool) {
	m := v.Snapshot()
	defer func() {
		v.Restore(m)
		v.Release()
	}()
	if pause > 0 {
		v.Advance(pause)
	}
	fate := v.Send(p.in, p.packet)
	for _, o := range fate.Out {
		if !slices.Contains(p.out, o.Interface) || o.Origin != sim.Forwarded {
			continue
		}
		answer := o.Packet.Reply()
		if p.packet.Proto != model.SCTP || !slices.ContainsFunc(fate.Hops, bySession) || leaves(v.Send(o.Interface, answer), p.in) {
			return o.Interface, true
		}
	}
	return "", false
}

// bySession reports whether a session let the packet pass.
func bySession(h sim.Hop) bool { return h.ACL != nil && h.ACL.Session }

// leaves reports whether VPP forwards a packet to an interface.
func leaves(fate sim.Fate, iface string) bool {
	return slices.ContainsFunc(fate.Out, func(o sim.Output) bool { return o.Interface == iface && o.Origin == sim.Forwarded })
}

// probes are packets between pods of a node and addresses outside the cluster that no version allows. The pods have the same interface in all
// versions: packets pass a new interface until the agent has seen it (ADR 14).
func (r *run) probes(node string, versions []int) (out []probe) {
	inside := map[netip.Addr]bool{}
	local := map[netip.Addr]map[string]int{} // versions, by address and interface
	for _, i := range versions {
		for _, o := range r.history[i].list {
			switch o := o.(type) {
			case *model.Node:
				for _, a := range o.Addrs() {
					inside[a] = true
				}
			case *model.Pod:
				for _, a := range o.IPs {
					inside[a] = true
					if o.NodeName == node && !o.HostNetwork && !o.Finished {
						if local[a] == nil {
							local[a] = map[string]int{}
						}
						local[a][cni.PodInterface(o.ID)]++
					}
				}
			}
		}
	}
	steady := func(a netip.Addr) string {
		for name, n := range local[a] {
			if n == len(versions) {
				return name
			}
		}
		return ""
	}
	for _, i := range versions {
		for _, f := range r.history[i].flows {
			p := probe{packet: packetOf(&f), flow: f}
			to, from := steady(f.Dst), steady(f.Src)
			switch {
			case to != "" && !inside[f.Src]:
				p.in, p.out = cni.Uplink, []string{to}
			case from != "" && !inside[f.Dst]:
				p.in, p.out = from, []string{cni.Uplink, cni.Overlay}
			default:
				continue
			}
			if p.why = r.denied(&f, versions); p.why != "" {
				out = append(out, p)
			}
		}
	}
	return out
}

// denied returns why no version allows a flow; "": one does.
func (r *run) denied(f *policy.Flow, versions []int) (why string) {
	for _, i := range versions {
		v := r.history[i].spec.JudgePods(f)
		if v.Allowed {
			return ""
		}
		why += fmt.Sprintf("version %d: %s; ", i, v.Why)
	}
	return why
}

// packetOf is the first packet of a flow.
func packetOf(f *policy.Flow) sim.Packet {
	p := sim.Packet{Src: f.Src, Dst: f.Dst, Proto: model.Protocol(f.Proto), SrcPort: f.SrcPort, DstPort: f.DstPort}
	if !f.Proto.Ports() {
		p.SrcPort, p.DstPort, p.ICMPType, p.ICMPCode = 0, 0, f.Type, f.Code
	}
	return p.Opening()
}
