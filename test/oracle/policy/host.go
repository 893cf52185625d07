package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// host is a host endpoint: a node's interface to the world outside.
type host struct {
	name, node string
	entity     *entity
	profiles   []string
}

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

// outside tells that an address is neither a pod's nor a node's.
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

// judgeUplink is the verdict of the host endpoints a flow meets, after that of the pods: at its node, if it comes from
// outside or goes there. A flow from or to the node itself is its own business; others it forwards.
func (c *Cluster) judgeUplink(f *Flow, why string) Verdict {
	egress := c.outside(f.Dst)
	if n := c.nodes[f.Node]; n != nil && egress != c.outside(f.Src) {
		local := slices.Contains(n.addrs, f.Dst)
		if egress {
			local = slices.Contains(n.addrs, f.Src)
		}
		for _, h := range c.hosts {
			if h.node != f.Node {
				continue
			}
			if ok, by := c.decideHost(h, egress, local, f); !ok {
				return Verdict{false, false, fmt.Sprintf("HostEndpoint %s: denied by %s", h.name, by)}
			}
		}
	}
	return Verdict{Allowed: true, Why: why}
}

// decideHost goes through the tiers of one direction of a host endpoint. Forwarded flows are judged by policies with
// applyOnForward only, and allowed if none decides; for others the profiles follow, and what they do not allow is denied.
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
