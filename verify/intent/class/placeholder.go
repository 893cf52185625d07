package class

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
)

// noNode is the node of a pod that no scheduler has placed.
const noNode = "(not scheduled)"

// The networks of placeholders: addresses that no host has. (240.0.0.0/4 is reserved by RFC 1112, 100::/64 by RFC 6666.)
var (
	placeholders4 = netip.MustParsePrefix("240.0.0.0/5") // read only
	placeholders6 = netip.MustParsePrefix("100::/64")    // read only
)

// IsPlaceholder reports whether an address is that of a pod without an address.
func IsPlaceholder(a netip.Addr) bool { return placeholders4.Contains(a) || placeholders6.Contains(a) }

// Scheduled reports whether a pod has a node.
func Scheduled(p *model.Pod) bool { return p.NodeName != noNode }

// Complete returns the objects with an address and a node for each pod that has none yet, as in manifests that nothing has deployed. The
// address is a placeholder of each family that nodes or other pods have, or of both families if no object has an address. Objects are not
// changed: a completed pod is a copy.
func Complete(objects []model.Object) []model.Object {
	four, six := families(objects)
	out := make([]model.Object, len(objects))
	a4, a6 := placeholders4.Addr(), placeholders6.Addr()
	for i, o := range objects {
		out[i] = o
		p, isPod := o.(*model.Pod)
		if !isPod || p.HostNetwork || p.Finished || len(p.IPs) > 0 && p.NodeName != "" {
			continue
		}
		whole := *p
		if whole.NodeName == "" {
			whole.NodeName = noNode
		}
		if a4, a6 = a4.Next(), a6.Next(); len(p.IPs) == 0 {
			if four || !six {
				whole.IPs = append(whole.IPs, a4)
			}
			if six || !four {
				whole.IPs = append(whole.IPs, a6)
			}
		}
		out[i] = &whole
	}
	return out
}

func families(objects []model.Object) (four, six bool) {
	see := func(a netip.Addr) {
		four = four || a.Is4()
		six = six || a.Is6()
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *model.Pod:
			for _, a := range o.IPs {
				see(a)
			}
		case *model.Node:
			for _, p := range o.PodCIDRs {
				see(p.Addr())
			}
		}
	}
	return four, six
}
