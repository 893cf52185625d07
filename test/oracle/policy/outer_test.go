package policy_test

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// nodePort is the port of a node that leads to port 80 or 8080 of a pod; 0: none. Those of half of the pods hide their clients.
func nodePort(pod netip.Addr, proto policy.Protocol, port uint16) (number uint16, hides bool) {
	if !pod.Is4() || proto != policy.TCP && proto != policy.UDP || port != 80 && port != 8080 {
		return 0, false
	}
	a := pod.As4()
	return 30100 + port + uint16(a[2])<<8 + uint16(a[3]), a[3]%2 == 0
}

// outer are the node ports of a node.
func (f *facts) outer(node string) []dataplane.Outer {
	var out []dataplane.Outer
	for pod := range f.pods {
		for _, proto := range []policy.Protocol{policy.TCP, policy.UDP} {
			for _, port := range []uint16{80, 8080} {
				if number, hides := nodePort(pod, proto, port); number != 0 && len(f.own[node]) > 0 {
					out = append(out, dataplane.Outer{
						Addr: f.own[node][0], Proto: uint8(proto), Port: number, Hides: hides, Backends: []netip.AddrPort{netip.AddrPortFrom(pod, port)},
					})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b dataplane.Outer) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// wantedOf returns the specifications' verdict for an entry. A packet from outside meets the host endpoint before
// translation.
func wantedOf(c *policy.Cluster, e *entry, pre bool) policy.Verdict {
	v := wantedOfPods(c, e, pre)
	if !v.Allowed || v.Always || e.flow.Src == e.flow.Dst {
		return v
	}
	met := e.flow
	translated := e.in == uplink && e.seen.dst != met.Dst
	if translated {
		met.Dst, met.DstPort = e.seen.dst, e.seen.dport
	}
	u := c.JudgeUplinks(&met, translated)
	u.Why = v.Why + "; " + u.Why
	return u
}

// wantedOfPods is wantedOf but for host endpoints.
func wantedOfPods(c *policy.Cluster, e *entry, pre bool) policy.Verdict {
	_, hides := nodePort(e.flow.Dst, e.flow.Proto, e.flow.DstPort)
	itself := e.flow.Src == e.flow.Dst && e.text == "by way of a cluster IP"
	switch {
	case itself && e.as.IsValid() && !hides:
		return policy.Verdict{Allowed: true, Why: "the pod itself"}
	case itself && e.as.IsValid():
		hidden := e.flow
		hidden.Src = e.as // packets to itself are not evaluated
		return c.JudgePods(&hidden)
	case e.as.IsValid():
		return c.JudgeHidden(&e.flow, e.as)
	case pre && e.flow.Proto == policy.SCTP && !c.Judge(&e.flow).Always:
		return c.JudgeHidden(&e.flow, e.flow.Src) // the node's address says nothing
	}
	return c.JudgePods(&e.flow)
}
