package generate

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// sourcePort is where clients dial from.
const sourcePort = 40000

// place of a flow's end: an address, and the node it is at ("" outside the cluster).
type end struct {
	addr netip.Addr
	node string
}

// Flows are all pairs of pods, nodes and addresses outside, of both families, each with some ports of every protocol. The
// ports are those the policies speak of, and their neighbours; the addresses outside lie around the bounds of the policies'
// networks. How many ports, chosen at random: n.
func (w *World) Flows(n int) []policy.Flow {
	var pods, nodes []end
	for _, p := range objectsOf[*corev1.Pod](w) {
		if p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			pods = append(pods, end{netip.MustParseAddr(ip.IP), p.Spec.NodeName})
		}
	}
	for _, node := range objectsOf[*corev1.Node](w) {
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				nodes = append(nodes, end{netip.MustParseAddr(a.Address), node.Name})
			}
		}
	}
	hosts := len(objectsOf[*policy.CalicoHostEndpoint](w)) > 0
	judged := func(from, to end) bool { // by pods' policies, or by those of uplinks
		return slices.Contains(pods, from) || slices.Contains(pods, to) || hosts && (from.node == "") != (to.node == "")
	}
	outside := w.outside(append(slices.Clone(pods), nodes...))
	var out []policy.Flow
	for _, from := range slices.Concat(pods, nodes, outside) {
		for _, to := range slices.Concat(pods, nodes, outside) {
			if from.addr.Is4() != to.addr.Is4() || !judged(from, to) {
				continue
			}
			at := from.node
			if at == "" {
				at = to.node // an outside sender reaches the right node
			}
			contents := w.contents(n, from.addr.Is4())
			if from == to || from.node == to.node && slices.Contains(nodes, from) {
				contents = contents[:1] // always allowed: one look will do
			}
			for _, f := range contents {
				f.Node, f.Src, f.Dst = at, from.addr, to.addr
				out = append(out, f)
			}
		}
	}
	return out
}

// contents are what flows carry: ports, and two kinds of ICMP.
func (w *World) contents(n int, v4 bool) []policy.Flow {
	numbers := []uint16{80}
	for _, p := range w.numbers {
		numbers = append(numbers, p, p, p, max(p-1, 1), max(p+1, p))
	}
	var out []policy.Flow
	for range n {
		out = append(out, policy.Flow{Proto: pick(w, policy.TCP, policy.TCP, policy.TCP, policy.UDP, policy.SCTP), SrcPort: sourcePort, DstPort: pick(w, numbers...)})
	}
	if v4 {
		return append(out, policy.Flow{Proto: policy.ICMP, Type: pick[uint8](w, 8, 8, 13, 3, 11), Code: pick[uint8](w, 0, 1)})
	}
	return append(out, policy.Flow{Proto: policy.ICMPv6, Type: pick[uint8](w, 128, 128, 139, 1, 135), Code: pick[uint8](w, 0, 1)})
}

// outside are addresses nobody in the cluster has: two usual ones, and two around the bounds of some networks.
func (w *World) outside(taken []end) []end {
	list := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")}
	for range 2 {
		if len(w.blocks) == 0 {
			break
		}
		b := pick(w, w.blocks...)
		list = append(list, pick(w, b.Addr(), b.Addr().Prev(), last(b), last(b).Next()))
	}
	var out []end
	for _, a := range list {
		isTaken := slices.ContainsFunc(taken, func(e end) bool { return e.addr == a })
		if a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !isTaken && !slices.Contains(out, end{addr: a}) && !w.inCluster(a) {
			out = append(out, end{addr: a})
		}
	}
	return out
}

// inCluster reports that an address is of the cluster's own networks, where nobody is outside.
func (w *World) inCluster(a netip.Addr) bool {
	for _, text := range []string{"10.0.0.0/15", "10.96.0.0/16", "fd00:10::/32", "fd00:192::/32", "192.168.16.0/24", "127.0.0.0/8", "0.0.0.0/8", "240.0.0.0/4", "::/16", "fe00::/7"} {
		if netip.MustParsePrefix(text).Contains(a) {
			return true
		}
	}
	return false
}

// last is the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(bytes) // 4 or 16 bytes: always good
	return a
}

// Sample is at most n of the flows, drawn at random.
func (w *World) Sample(flows []policy.Flow, n int) []policy.Flow {
	w.rng.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
	return flows[:min(n, len(flows))]
}
