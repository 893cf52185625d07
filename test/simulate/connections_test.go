package simulate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// connection is one between a pod of a node and an address outside the cluster, whose first packet has passed.
type connection struct {
	flow policy.Flow
	next probe // its next request
}

// newPerRound is how many connections a node opens after each round.
const newPerRound = 6

// pauses are those of connections before a packet. They are around the timeouts of VPP's sessions, of NAT44 and of access lists: 60 s, 120 s, 240 s, 300 s, 600 s,
// 7,440 s and a day.
var pauses = []time.Duration{0, time.Second, 59 * time.Second, 61 * time.Second, 121 * time.Second, 241 * time.Second, 301 * time.Second, 601 * time.Second, 7441 * time.Second, 25 * time.Hour}

// continueConnections sends the next request of each connection of a node that the policies do not allow any more, after a pause: it must not pass. Then it opens
// some that they allow.
func (r *run) continueConnections(n *node, v *version) error {
	rng := rand.New(rand.NewPCG(r.Seed, uint64(len(n.open))))
	at, inside := localPods(v, n.name)
	for _, c := range n.open {
		judged := v.spec.JudgePods(&c.flow)
		if judged.Allowed || at[podOf(&c.flow, inside)] == "" || inside[c.flow.Src] && inside[c.flow.Dst] {
			continue
		}
		p := c.next.at(&c.flow, at)
		pause := pauses[rng.IntN(len(pauses))]
		r.Revoked++
		if out, passes := p.passes(n.sim, pause); passes {
			return fmt.Errorf("%s of a revoked connection leaves by %s after a pause of %s: %s", &p.packet, out, pause, judged.Why)
		}
	}
	opened := 0
	for _, f := range v.flows {
		if opened == newPerRound {
			break
		}
		pod := podOf(&f, inside)
		if inside[f.Src] == inside[f.Dst] || at[pod] == "" || !f.Proto.Ports() || f.Undeclared() || !v.spec.JudgePods(&f).Allowed {
			continue
		}
		c := connection{flow: f, next: probe{packet: packetOf(&f).GoingOn()}}
		if f.Proto == policy.SCTP { // an association continues until it begins anew (ADR 11)
			c.next.packet = packetOf(&f)
		}
		p := c.next.at(&f, at)
		p.packet = packetOf(&f)
		for _, o := range n.sim.Send(p.in, p.packet).Out {
			if o.Origin == sim.Forwarded {
				n.open = append(n.open, c)
				opened++
				break
			}
		}
	}
	return nil
}

// localPods are the interfaces of a node's pods by address, and all addresses of the cluster.
func localPods(v *version, node string) (at map[netip.Addr]string, inside map[netip.Addr]bool) {
	at, inside = map[netip.Addr]string{}, map[netip.Addr]bool{}
	for _, o := range v.list {
		switch o := o.(type) {
		case *model.Node:
			for _, a := range o.Addrs() {
				inside[a] = true
			}
		case *model.Pod:
			for _, a := range o.IPs {
				inside[a] = true
				if o.NodeName == node && !o.HostNetwork && !o.Finished {
					at[a] = cni.PodInterface(o.ID)
				}
			}
		}
	}
	return at, inside
}

// podOf is the address of a flow that a pod may have.
func podOf(f *policy.Flow, inside map[netip.Addr]bool) netip.Addr {
	if inside[f.Src] {
		return f.Src
	}
	return f.Dst
}

// at returns a packet of a flow at the present interface of its pod.
func (p probe) at(f *policy.Flow, pods map[netip.Addr]string) probe {
	if name := pods[f.Src]; name != "" {
		p.in, p.out = name, []string{cni.Uplink, cni.Overlay}
	} else {
		p.in, p.out = cni.Uplink, []string{pods[f.Dst]}
	}
	return p
}
