package verify

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/verify/dump/translation"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// exactUpTo is how many endpoints of a port get exactly their shares. Beyond, VPP may keep older weights, up to twice the others
// (ADR 31).
const exactUpTo = 84

// checkFrontend compares a frontend with its mapping in VPP; nil: they are equal.
func (c *services) checkFrontend(f *serving.Frontend) *Translated {
	m := c.takeMapping(f)
	d := c.packet(f.At, f.Hides)
	d.Service = c.describeFate(f)
	switch {
	case m == nil && (f.Refused != "" || f.Fate == serving.Rejected):
		return nil // checkRejection looks at the address
	case m == nil:
		d.VPP = c.untranslated(f.Addr)
	case m.Ends:
		d.VPP = describeMapping(m)
	case f.Refused != "":
		d.VPP, d.Service = describeMapping(m), "rejected: "+f.Refused
	case f.Fate == serving.Rejected:
		d.VPP = describeMapping(m)
	case f.Fate == serving.Silent:
		d.VPP = c.checkSilence(m)
	default:
		d.VPP = cmp.Or(c.checkTargets(f, m), c.checkShares(f, m), c.checkSource(f, m))
	}
	if d.VPP == "" {
		return nil
	}
	return &d
}

// describeFate is what a Service says about a packet to one of its frontends.
func (c *services) describeFate(f *serving.Frontend) string {
	if f.Fate != serving.Balanced {
		return fmt.Sprintf("%s: %s", f.Fate, f.Why)
	}
	var to []string
	for i, b := range f.Backends {
		if i == 8 {
			to = append(to, "…")
			break
		}
		to = append(to, b.At.String())
	}
	return fmt.Sprintf("forwarded to %s (%s)", strings.Join(to, ", "), f.Why)
}

// untranslated is what VPP does with packets to an address without a mapping.
func (c *services) untranslated(a netip.Addr) string {
	if _, rejects := c.node.Rejecting[a]; rejects {
		if r := c.vpp.Routes[translation.Whole(a)]; c.rejects(r) {
			return "no mapping: rejected"
		}
	}
	if slices.Contains(c.node.Own, a) {
		return "no mapping: the node itself gets the packet"
	}
	return "no mapping: the packet follows the route of its address"
}

// checkSilence says why a mapping does not drop; "": it does.
func (c *services) checkSilence(m *translation.Mapping) string {
	for _, t := range m.Targets {
		if t.Share > 0 && (t.Odd != "" || c.vpp.Routes[translation.Lookup{Prefix: translation.Whole(t.At.Addr()).Prefix}].Kind != translation.Drops) {
			return "forwards to " + describeTarget(m, t)
		}
	}
	return ""
}

// checkTargets says which target of a mapping is none of the frontend's endpoints, or which endpoint the mapping lacks; "": none.
func (c *services) checkTargets(f *serving.Frontend, m *translation.Mapping) string {
	index := map[netip.AddrPort]int{}
	for i, b := range f.Backends {
		index[b.At] = i
	}
	served := make([]bool, len(f.Backends))
	count := 0
	for _, t := range m.Targets {
		i, is := index[t.At]
		switch {
		case t.Share == 0 && (t.Pad() || is || slices.Contains(f.Leaving, t.At)):
		case t.Share == 0:
			return fmt.Sprintf("keeps connections to %s, which is no endpoint", t.At)
		case !is && t.Pad():
			return fmt.Sprintf("forwards to %s, a place without an endpoint", describeTarget(m, t))
		case !is && slices.Contains(f.Leaving, t.At):
			return fmt.Sprintf("forwards to %s, which gets no new connections", describeTarget(m, t))
		case !is:
			return fmt.Sprintf("forwards to %s, which is no endpoint", describeTarget(m, t))
		case t.Odd != "":
			return "forwards to " + describeTarget(m, t)
		case served[i]:
			return fmt.Sprintf("has %s twice: VPP ends connections of both when one is removed", t.At)
		default:
			served[i] = true
			count++
		}
	}
	if f.Most > 0 && count < f.Most {
		return fmt.Sprintf("forwards to %d endpoints, and %d are possible", count, f.Most)
	}
	if at := slices.Index(served, false); at >= 0 && f.Most == 0 {
		return fmt.Sprintf("%s gets no connection: share 0", f.Backends[at].At)
	}
	return ""
}

// checkShares says which endpoint gets another share than its weight; "": none. All targets are endpoints.
func (c *services) checkShares(f *serving.Frontend, m *translation.Mapping) string {
	shares := map[netip.AddrPort]int{}
	for _, t := range m.Targets {
		shares[t.At] += t.Share
	}
	total, weights := 0, 0
	for _, b := range f.Backends {
		if shares[b.At] > 0 {
			total, weights = total+shares[b.At], weights+b.Weight
		}
	}
	least, largest := f.Backends[0], f.Backends[0] // by share for each weight
	for _, b := range f.Backends {
		if n := shares[b.At]; n > 0 {
			if n*least.Weight < shares[least.At]*b.Weight {
				least = b
			}
			if n*largest.Weight > shares[largest.At]*b.Weight {
				largest = b
			}
		}
	}
	more, less := shares[largest.At]*least.Weight, shares[least.At]*largest.Weight
	if more == less || len(m.Targets) > 0 && len(f.Backends)+len(f.Leaving) > exactUpTo && more <= 2*less {
		return ""
	}
	return fmt.Sprintf("%s gets %d of %d connections, and should get %d of %d", largest.At, shares[largest.At], total, largest.Weight, weights)
}

// checkSource says why an endpoint sees another source than it should, or why its answers miss the client; "": it sees the right one.
func (c *services) checkSource(f *serving.Frontend, m *translation.Mapping) string {
	if m.Engine == serving.CNAT {
		if f.Sticky && !m.Maglev {
			return "the endpoint depends on the client's port: no session affinity"
		}
		return ""
	}
	switch {
	case !m.OneWay:
		return fmt.Sprintf("packets that %s itself sends from this port get the source %s (the mapping is not out2in only)", f.Backends[0].At, f.At)
	case !c.hasLoopback() && !m.Hides && !m.Loops:
		return ""
	case m.Hides && !f.Hides:
		return "the endpoint sees an address of VPP instead of the client's (twice-nat)"
	case !m.Hides && f.Hides:
		return "the client keeps its address (no twice-nat): the answer of an endpoint on another node does not return through this node"
	case !m.Hides && !m.Loops:
		return "a pod that reaches itself keeps its address (no self-twice-nat): its answer does not return through VPP"
	}
	return ""
}

// hasLoopback reports that the node should have an address for twice-NAT: its pods have a range with room for one, or VPP has one.
func (c *services) hasLoopback() bool {
	return len(c.vpp.Loopbacks) > 0 || slices.ContainsFunc(c.node.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() && p.Bits() < 31 })
}

// rejects reports that packets on a route are rejected: by VPP, or by the node's kernel, to which the route leads by an interface without NAT.
func (c *services) rejects(r translation.Route) bool {
	if r.Kind == translation.Forwards && r.Known && r.Via.IsValid() {
		return c.vpp.Roles[r.Interface] == translation.Role{}
	}
	return r.Kind == translation.Rejects
}

// checkRejection compares the route of an address: packets without a mapping are rejected.
func (c *services) checkRejection(a netip.Addr) *Translated {
	r := c.vpp.Routes[translation.Whole(a)]
	if c.rejects(r) {
		return nil
	}
	at := serving.At{Addr: a, Port: 1, Protocol: model.TCP}
	for slices.ContainsFunc(c.node.Frontends, func(f *serving.Frontend) bool { return f.At == at && f.Fate != serving.Rejected && f.Refused == "" }) {
		at.Port++
	}
	for _, f := range c.node.Frontends {
		if f.Addr == a && f.Fate == serving.Rejected {
			at = f.At
			break
		}
	}
	d := c.packet(at, false)
	d.Service = fmt.Sprintf("rejected: Service %s has the address, and no endpoint for this port", c.node.Rejecting[a])
	d.VPP = "follows the route of a larger prefix"
	if r.Kind != "" {
		d.VPP = fmt.Sprintf("VPP %s: the route of %s", r.Kind, a)
	}
	return &d
}
