// Package meaning turns pods, namespaces and policies into sets of headers: what policies allow each pod to receive and to send.
//
// Invariant: the package shares no code with the calculation graph, the policy processor and the renderers, so that a fault of theirs is
// no fault here. It reads the model that sources emit, and the specifications of the policies' kinds.
//
//	tiers in order ─▶ policies in order ─▶ rules in order: the first match allows, denies, or continues with the next tier
//	                                       end of a tier with policies for the pod: deny, unless the tier passes
//	no tier decides ─▶ allowed
package meaning

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
	"github.com/contiv-agent/contiv-agent/space"
)

// Cluster is all objects of one moment. It is not safe for concurrent use.
type Cluster struct {
	space    *space.Space
	Pods     []*Pod // with an address of theirs and a node, sorted by name
	Services []*model.Service
	Slices   []*model.EndpointSlice
	Nodes    []*model.Node
	Ranges   []netip.Prefix // of cluster IPs
	Hosts    []*model.HostEndpoint
	Policies []*model.Policy // sorted; no staged ones
	entities []entity
	tiers    []*model.Tier
	matches  map[*model.Rule]space.Set
	peers    map[sideKey]space.Set         // by selectors, or by the name of a port
	verdicts map[string]*verdict           // by policies
	doubts   map[*model.Rule]string        // why a rule cannot be evaluated
	parsed   map[string]*selector.Selector // nil: it is no selector, and selects nothing
}

// Pod is a pod that policies apply to.
type Pod struct {
	*model.Pod
	labels selector.Map
}

// entity is what selectors select: pods, network sets and nodes.
type entity struct {
	labels selector.Map
	nets   []netip.Prefix
	ports  []model.NamedPort
	pod    bool
}

// metadataName is the label that the API server gives to every namespace.
const metadataName = "kubernetes.io/metadata.name"

// Read reads objects. Kinds without a meaning for policies are ignored.
func Read(s *space.Space, objects []model.Object) *Cluster {
	c := &Cluster{space: s, matches: map[*model.Rule]space.Set{}, peers: map[sideKey]space.Set{}, verdicts: map[string]*verdict{}, doubts: map[*model.Rule]string{}, parsed: map[string]*selector.Selector{}}
	inherited := map[string]map[string]string{} // by profile
	named := map[string]bool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *model.Namespace:
			inherited["kns."+o.Name] = prefixed("pcns.", o.Labels)
		case *model.ServiceAccount:
			inherited["ksa."+o.Namespace+"."+o.Name] = prefixed("pcsa.", o.Labels)
		case *model.Profile:
			inherited[o.Name] = o.Labels
		case *model.Service:
			c.Services = append(c.Services, o)
		case *model.EndpointSlice:
			c.Slices = append(c.Slices, o)
		case *model.Node:
			c.Nodes = append(c.Nodes, o)
			set := model.NodeSet(o)
			c.entities = append(c.entities, entity{labels: set.Labels, nets: set.Nets})
		case *model.ServiceCIDR:
			c.Ranges = append(c.Ranges, o.CIDRs...)
		case *model.HostEndpoint:
			c.Hosts = append(c.Hosts, o)
		case *model.Tier:
			c.tiers, named[o.Name] = append(c.tiers, o), true
		case *model.Policy:
			if o.StagedAction() == "" {
				c.Policies = append(c.Policies, o)
			}
		}
	}
	for _, t := range model.BuiltinTiers() {
		if !named[t.Name] {
			c.tiers, named[t.Name] = append(c.tiers, t), true
		}
	}
	for _, p := range c.Policies {
		if !named[p.Tier] {
			c.tiers, named[p.Tier] = append(c.tiers, &model.Tier{Name: p.Tier}), true
		}
	}
	c.readEntities(objects, inherited)
	c.arrange()
	return c
}

func prefixed(prefix string, labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		out[prefix+k] = v
	}
	return out
}

// readEntities reads what has labels: a label of the object itself precedes an inherited one.
func (c *Cluster) readEntities(objects []model.Object, inherited map[string]map[string]string) {
	inherit := func(labels selector.Map, profiles ...string) {
		for _, profile := range profiles {
			for k, v := range inherited[profile] {
				if _, has := labels[k]; !has {
					labels[k] = v
				}
			}
		}
	}
	put := func(labels selector.Map, k, v string) {
		if _, has := labels[k]; !has {
			labels[k] = v
		}
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *model.Pod:
			if o.HostNetwork || o.Finished || o.NodeName == "" {
				continue
			}
			labels := selector.Map{}
			for k, v := range o.Labels {
				labels[k] = v
			}
			labels["projectcalico.org/namespace"], labels["projectcalico.org/orchestrator"] = o.ID.Namespace, "k8s"
			inherit(labels, "kns."+o.ID.Namespace)
			labels["pcns.projectcalico.org/name"] = o.ID.Namespace
			put(labels, "pcns."+metadataName, o.ID.Namespace)
			if o.ServiceAccount != "" {
				labels["projectcalico.org/serviceaccount"] = o.ServiceAccount
				inherit(labels, "ksa."+o.ID.Namespace+"."+o.ServiceAccount)
				labels["pcsa.projectcalico.org/name"] = o.ServiceAccount
			}
			p := &Pod{o, labels}
			c.Pods = append(c.Pods, p)
			c.entities = append(c.entities, entity{labels, p.Nets(), o.Ports, true})
		case *model.NetworkSet:
			labels := selector.Map{}
			for k, v := range o.Labels {
				labels[k] = v
			}
			if namespace, _, namespaced := strings.Cut(o.Name, "/"); namespaced {
				labels["projectcalico.org/namespace"] = namespace
				inherit(labels, "kns."+namespace)
				labels["pcns.projectcalico.org/name"] = namespace
				put(labels, "pcns."+metadataName, namespace)
			}
			inherit(labels, o.Profiles...)
			c.entities = append(c.entities, entity{labels: labels, nets: o.Nets})
		case *model.HostEndpoint:
			labels := selector.Map{}
			for k, v := range o.Labels {
				labels[k] = v
			}
			inherit(labels, o.Profiles...)
			var nets []netip.Prefix
			for _, a := range o.Addrs {
				nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
			}
			c.entities = append(c.entities, entity{labels, nets, o.Ports, false})
		}
	}
}

// Labels are what selectors see: the pod's labels and those that it inherits. Do not change them.
func (p *Pod) Labels() selector.Map { return p.labels }

// Nets are the pod's addresses.
func (p *Pod) Nets() (nets []netip.Prefix) {
	for _, a := range p.IPs {
		nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
	}
	return nets
}

// Nets are the networks of what selectors select beside pods: network sets, host endpoints and nodes.
func (c *Cluster) Nets() (nets []netip.Prefix) {
	for i := range c.entities {
		if !c.entities[i].pod {
			nets = append(nets, c.entities[i].nets...)
		}
	}
	return nets
}

// arrange sorts everything in the order of evaluation.
func (c *Cluster) arrange() {
	slices.SortFunc(c.Pods, func(a, b *Pod) int { return a.ID.Compare(b.ID) })
	slices.SortFunc(c.tiers, func(a, b *model.Tier) int {
		if n := a.Order.Compare(b.Order); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	slices.SortFunc(c.Policies, func(a, b *model.Policy) int {
		if n := a.Order.Compare(b.Order); n != 0 {
			return n
		}
		if n := strings.Compare(a.FelixName(), b.FelixName()); n != 0 {
			return n
		}
		return a.ID.Compare(b.ID)
	})
}

// governing are the policies of a tier that apply to a direction of a pod, in order.
func (c *Cluster) governing(tier string, p *Pod, egress bool) (out []*model.Policy) {
	for _, q := range c.Policies {
		both := !q.Ingress && !q.Egress
		directed := q.Ingress
		if egress {
			directed = q.Egress
		}
		if q.Tier == tier && (directed || both) && !q.Untracked && !q.PreDNAT && c.selects(q.Selector, p.labels) {
			out = append(out, q)
		}
	}
	return out
}

func (c *Cluster) selects(text string, labels selector.Map) bool {
	s, known := c.parsed[text]
	if !known {
		var err error
		if s, err = selector.Parse(text); err != nil {
			s = nil
		}
		c.parsed[text] = s
	}
	return s != nil && s.Matches(labels)
}

func rulesOf(p *model.Policy, egress bool) []model.Rule {
	if egress {
		return p.OutboundRules
	}
	return p.InboundRules
}
