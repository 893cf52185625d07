package policy

import (
	"net/netip"
)

// host is a host endpoint: a node's interface to the world outside.
type host struct {
	name, node string
	entity     *entity
	profiles   []string
}

func (c *Cluster) readHost(o *CalicoHostEndpoint) error {
	h := &host{name: o.Name, node: o.Spec.Node, profiles: o.Spec.Profiles, entity: &entity{labels: clone(o.Labels)}}
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

// judgeUplink is the verdict of the host endpoints on the way, after that of the pods.
func (c *Cluster) judgeUplink(_ *Flow, why string) Verdict { return Verdict{Allowed: true, Why: why} }
