package oracle

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
)

// The limits of the renderers, as their pages list them under BUGS.
const (
	localSubset = "one mapping for everybody: clients inside get the local endpoints of an external Local frontend"
	notAnswered = "a client outside who dials an external Local frontend of a node without endpoints is not answered"
	fromOutside = "a client outside who dials a cluster IP is answered by local endpoints only"
	unusedPort  = "an unused port of an external address is rejected, not left to the routes"
	elsewhere   = "a client outside who dials an external Local frontend of a node without endpoints reaches those of others"
	unallocated = "packets to unallocated addresses of a service CIDR follow whatever routes there are"
	ownNode     = "a node's processes do not reach themselves through a service"
	refused     = "a load-balancer IP with source ranges is refused"
	directly    = "the reply of a pod that a client outside reached at its own address gets the node's"
)

func nat44Limit(c *Cluster, p Packet, want Expectation) string {
	switch {
	case want.Service.Name == "" && c.externalVIP(p.Dst.Addr()):
		return unusedPort
	case want.Service.Name == "":
		return ""
	case want.External && want.Policy == model.PolicyLocal && !want.Outside && want.Fate == Delivered:
		return localSubset
	case want.External && want.Policy == model.PolicyLocal && want.Outside && want.Fate == Dropped:
		return notAnswered
	case !want.External && p.Class == Outside && want.Fate == Delivered:
		return fromOutside
	}
	return ""
}

func cnatLimit(c *Cluster, p Packet, want Expectation) string {
	switch {
	case want.Restricted:
		return refused
	case want.Service.Name == "" && c.externalVIP(p.Dst.Addr()):
		return unusedPort
	case want.Service.Name == "" && want.Fate == Dropped:
		return unallocated
	case want.Service.Name == "" && p.Class == Outside:
		return directly
	case want.Service.Name == "":
		return ""
	case p.Class == Host && p.Src != p.Dst.Addr() && c.mayMeetItself(p, want):
		return ownNode
	case want.External && want.Policy == model.PolicyLocal && !want.Outside && want.Fate == Delivered:
		return localSubset
	case want.External && want.Policy == model.PolicyLocal && want.Outside && want.Fate == Dropped:
		return elsewhere
	}
	return ""
}

// mayMeetItself reports that a node's process is among the endpoints it may be given: by Kubernetes, or by policy Local, which leaves
// hints out.
func (c *Cluster) mayMeetItself(p Packet, want Expectation) bool {
	all := slices.Clone(want.Backends)
	if p.Class = Outside; want.External && want.Policy == model.PolicyLocal {
		all = append(all, c.Expect(p).Backends...)
	}
	return slices.ContainsFunc(all, func(b netip.AddrPort) bool { return b.Addr() == p.Src })
}

// judgeLimit checks that a known limit shows exactly as documented, and no worse.
func judgeLimit(c *Cluster, p Packet, limit string, want Expectation, got Fate, a trace.Answer) string {
	switch limit {
	case localSubset:
		if got != Delivered {
			return fmt.Sprintf("%s (%s), Kubernetes says delivered", got, a.Reason)
		}
		p.Class = Outside // whose mapping it is
		outside := c.Expect(p)
		if backends := backendsOf(a); !slices.Equal(backends, want.Backends) && !slices.Equal(backends, outside.Backends) {
			return fmt.Sprintf("may reach %v, Kubernetes says %v, or %v outside", backends, want.Backends, outside.Backends)
		}
	case unusedPort, refused:
		if got != Rejected {
			return fmt.Sprintf("%s (%s), not rejected", got, a.Reason)
		}
	case ownNode:
		for _, o := range a.Outcomes {
			if own := netip.MustParseAddrPort(o.Address).Addr() == p.Src; own == (Fate(o.Verdict) == Delivered) {
				return fmt.Sprintf("%s is %s (%s)", o.Address, o.Verdict, o.Reason)
			}
		}
		p.Class = Outside
		outside := c.Expect(p) // the clients that policy Local keeps
		if backends := backendsOf(a); !slices.Equal(backends, want.Backends) && !(want.External && slices.Equal(backends, outside.Backends)) {
			return fmt.Sprintf("may reach %v, Kubernetes says %v", backends, want.Backends)
		}
	case unallocated, directly: // whatever comes of it
	case elsewhere:
		p.Class, p.Node = Pod, c.balancer(p) // who may reach all
		if backends := backendsOf(a); got != Delivered || !slices.Equal(backends, c.Expect(p).Backends) {
			return fmt.Sprintf("%s to %v, where all are to be reached", got, backends)
		}
	case notAnswered:
		p.Class, p.Node = Pod, c.balancer(p)
		itself := func(b netip.AddrPort) bool { return b.Addr() == p.Src }
		if got == Delivered && !slices.ContainsFunc(c.Expect(p).Backends, itself) {
			return "delivered, Kubernetes says dropped"
		}
	case fromOutside:
		if backends := backendsOf(a); !slices.Equal(backends, want.Backends) {
			return fmt.Sprintf("may reach %v, Kubernetes says %v", backends, want.Backends)
		}
	}
	return ""
}

// externalVIP reports whether an address is an external one of some served Service.
func (c *Cluster) externalVIP(addr netip.Addr) bool {
	for _, svc := range c.Services {
		if !served(svc, addr) {
			continue
		}
		for _, lb := range svc.LoadBalancerIPs {
			if lb.Addr == addr && !lb.Proxy && !c.owned(svc, addr, false) {
				return true
			}
		}
		if slices.Contains(svc.ExternalIPs, addr) && !c.owned(svc, addr, true) {
			return true
		}
	}
	return false
}
