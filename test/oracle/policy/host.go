package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

func (c *Cluster) readHost(o *CalicoHostEndpoint) error {
	h := &host{name: o.Name, node: o.Spec.Node, profiles: o.Spec.Profiles, entity: &entity{labels: clone(o.Labels)}}
	for _, name := range o.Spec.Profiles {
		below(h.entity.labels, "", c.profileLabels[name])
	}
	for _, text := range o.Spec.ExpectedIPs {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		h.entity.nets = append(h.entity.nets, netip.PrefixFrom(a, a.BitLen()))
	}
	c.hosts = append(c.hosts, h)
	c.entities = append(c.entities, h.entity)
	return nil
}

// outside reports that an address is neither a pod's nor a node's.
func (c *Cluster) outside(a netip.Addr) bool {
	if c.at[a] != nil {
		return false
	}
	for _, n := range c.nodes {
		if slices.Contains(n.addrs, a) {
			return false
		}
	}
	return true
}

// nodeAt is the node that has an address itself; nil: none.
func (c *Cluster) nodeAt(a netip.Addr) *node {
	if c.at[a] != nil {
		return nil
	}
	for _, n := range c.nodes {
		if slices.Contains(n.addrs, a) {
			return n
		}
	}
	return nil
}

// JudgeUplinks is the verdict of the host endpoints a flow meets: where it comes in from outside, or leaves its node for
// outside or for another node itself. A flow from or to the node itself is its own business;
// others it forwards, also one to itself that it translates.
func (c *Cluster) JudgeUplinks(f *Flow, translated bool) Verdict {
	from, to := c.nodes[f.Node], c.nodeAt(f.Dst)
	switch {
	case from == nil:
	case c.outside(f.Src) && (translated || !c.outside(f.Dst)):
		return c.uplink(f.Node, false, to == from && !translated, f)
	case !c.outside(f.Src) && (c.outside(f.Dst) || to != nil && to != from):
		return c.uplink(f.Node, true, slices.Contains(from.addrs, f.Src), f)
	}
	return Verdict{Allowed: true, Why: "no host endpoint is asked"}
}

// uplink is the verdict of a node's host endpoints.
func (c *Cluster) uplink(node string, egress, local bool, f *Flow) Verdict {
	why := "no host endpoint there"
	for _, h := range c.hosts {
		if h.node != node || local && Failsafe(egress, f) {
			continue
		}
		ok, by := c.decideHost(h, egress, local, f)
		if why = fmt.Sprintf("HostEndpoint %s: %s", h.name, by); !ok {
			return Verdict{false, false, why}
		}
	}
	return Verdict{Allowed: true, Why: why}
}

// Failsafe reports whether a flow from or to a node itself is one that no host endpoint stops (Felix v3.31's settings, unless
// they are changed).
func Failsafe(egress bool, f *Flow) bool {
	switch f.DstPort {
	case 179, 2379, 2380, 5473, 6443, 6666, 6667:
		return f.Proto == TCP
	case 22:
		return f.Proto == TCP && !egress
	case 68:
		return f.Proto == UDP && !egress
	case 53, 67:
		return f.Proto == UDP && egress
	}
	return false
}

// decideHost evaluates the tiers of one direction of a host endpoint. For forwarded flows it uses policies with
// applyOnForward only, and allows if none decides; for others the profiles follow, and the rest is denied.
func (c *Cluster) decideHost(h *host, egress, local bool, f *Flow) (allowed bool, by string) {
	for _, t := range c.tiers {
		mine := *t
		mine.policies = nil
		for _, p := range t.policies {
			if (egress && p.egress || !egress && p.ingress) && p.selectsHost != nil && p.selectsHost(h) && (local || p.forward) {
				mine.policies = append(mine.policies, p)
			}
		}
		if len(mine.policies) == 0 {
			continue
		}
		switch decision, by := mine.decide(egress, f); decision {
		case allow:
			return true, by
		case deny:
			return false, by
		}
	}
	if !local {
		return true, ""
	}
	for _, name := range h.profiles {
		p := c.profiles[name]
		if p == nil {
			return false, "missing profile " + name
		}
		t := &tier{passes: true, policies: []*policy{p}}
		switch decision, by := t.decide(egress, f); decision {
		case allow:
			return true, by
		case deny:
			return false, by
		}
	}
	return false, "its end"
}
