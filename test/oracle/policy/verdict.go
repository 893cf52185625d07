package policy

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// Verdict is what the specifications say about a flow.
type Verdict struct {
	Allowed bool
	Always  bool // whatever the policies are
	Why     string
}

// The tiers the Kubernetes kinds live in, among Calico's own.
const (
	tierAdmin        = "adminnetworkpolicy"
	tierKubeAdmin    = "kube-admin" // ClusterNetworkPolicy: behind tierAdmin, by name
	TierDefault      = "default"
	tierBaseline     = "baselineadminnetworkpolicy"
	tierKubeBaseline = "kube-baseline"
)

// tier is a group of policies; what a pod's policies leave undecided it denies, unless it passes.
type tier struct {
	name     string
	order    float64
	passes   bool
	policies []*policy
}

// policy is a policy of any kind, as far as it has been read: what it selects, and its rules.
type policy struct {
	name            string
	order           float64
	selects         func(*pod) bool
	selectsHost     func(*host) bool // nil: never
	forward         bool
	ingress, egress bool
	in, out         []ruling
}

// ruling is a rule: what it does with the flows it matches.
type ruling struct {
	action action
	match  func(*Flow) bool
}

type action int

const (
	allow action = iota
	deny
	pass
	log // and go on
)

// direction is a pod and one of its directions.
type direction struct {
	pod    *pod
	egress bool
}

func (d direction) String() string {
	if d.egress {
		return fmt.Sprintf("egress of %s/%s", d.pod.namespace, d.pod.name)
	}
	return fmt.Sprintf("ingress of %s/%s", d.pod.namespace, d.pod.name)
}

func orderOf(v *float64) float64 {
	if v == nil {
		return math.Inf(1)
	}
	return *v
}

func (c *Cluster) tier(name string) *tier {
	for _, t := range c.tiers {
		if t.name == name {
			return t
		}
	}
	t := &tier{name: name, order: math.Inf(1)}
	switch name {
	case tierAdmin, tierKubeAdmin:
		t.order, t.passes = 1000, true
	case TierDefault:
		t.order = 1e6
	case tierBaseline, tierKubeBaseline:
		t.order, t.passes = 1e7, true
	}
	c.tiers = append(c.tiers, t)
	return t
}

func (c *Cluster) addTierPolicy(name string, p *policy) error {
	t := c.tier(name)
	t.policies = append(t.policies, p)
	return nil
}

func (c *Cluster) sortTiers() {
	slices.SortFunc(c.tiers, func(a, b *tier) int { return inOrder(a.order, a.name, b.order, b.name) })
	for _, t := range c.tiers {
		slices.SortStableFunc(t.policies, func(a, b *policy) int { return inOrder(a.order, a.name, b.order, b.name) })
	}
}

func inOrder(order1 float64, name1 string, order2 float64, name2 string) int {
	switch {
	case order1 < order2:
		return -1
	case order1 > order2:
		return 1
	}
	return strings.Compare(name1, name2)
}

// Judge is the verdict about a flow.
func (c *Cluster) Judge(f *Flow) Verdict {
	v := c.JudgePods(f)
	if !v.Allowed || v.Always {
		return v
	}
	u := c.JudgeUplinks(f, false)
	u.Why = v.Why + "; " + u.Why
	return u
}

// JudgePods is the verdict about a flow, but for host endpoints.
func (c *Cluster) JudgePods(f *Flow) Verdict {
	if f.Src == f.Dst {
		return Verdict{true, true, "to itself"}
	}
	if f.alwaysPasses() {
		return Verdict{true, true, "ICMP error or neighbour discovery"}
	}
	out := c.egress(f)
	if !out.Allowed {
		return out
	}
	why := out.Why
	if p := c.at[f.Dst]; p != nil {
		if n := c.nodes[p.node]; n != nil && f.Node == n.name && slices.Contains(n.addrs, f.Src) {
			return Verdict{true, false, "from the pod's own node"}
		}
		v := c.decide(direction{p, false}, f)
		if !v.Allowed {
			return v
		}
		why += "; " + v.Why
	}
	return Verdict{Allowed: true, Why: why}
}

// egress is the verdict of the pod a flow comes from, if it comes from one.
func (c *Cluster) egress(f *Flow) Verdict {
	if p := c.at[f.Src]; p != nil {
		return c.decide(direction{p, true}, f)
	}
	return Verdict{true, false, "no pod to protect"}
}

// JudgeHidden returns the verdict about a flow whose source is replaced by another address before its destination sees it:
// its egress is its own; the owner of that address cannot be distinguished from it, and so is not trusted.
func (c *Cluster) JudgeHidden(f *Flow, as netip.Addr) Verdict {
	out := c.egress(f)
	if !out.Allowed {
		return out
	}
	why := out.Why
	if p := c.at[f.Dst]; p != nil {
		hidden := *f
		hidden.Src = as
		v := c.decide(direction{p, false}, &hidden)
		v.Why = why + "; " + v.Why
		return v
	}
	return Verdict{true, false, why}
}

// alwaysPasses reports that the flow is an ICMP error or a part of IPv6's neighbour discovery.
func (f *Flow) alwaysPasses() bool {
	switch f.Proto {
	case ICMP:
		return f.Type == 3 || f.Type == 11 || f.Type == 12
	case ICMPv6:
		return f.Type >= 1 && f.Type <= 4 || f.Type >= 135 && f.Type <= 136
	}
	return false
}

// decide goes through the tiers of one direction of a pod.
func (c *Cluster) decide(d direction, f *Flow) Verdict {
	for _, t := range c.governing(d) {
		switch decision, by := t.decide(d.egress, f); decision {
		case allow:
			return Verdict{true, false, d.String() + ": allowed by " + by}
		case deny:
			return Verdict{false, false, d.String() + ": denied by " + by}
		}
	}
	return Verdict{true, false, d.String() + ": no policy decides"}
}

// governing are the tiers of a direction with the policies that govern it; tiers without any are left out.
func (c *Cluster) governing(d direction) []*tier {
	if known, ok := c.directions[d]; ok {
		return known
	}
	var out []*tier
	for _, t := range c.tiers {
		mine := *t
		mine.policies = nil
		for _, p := range t.policies {
			if (d.egress && p.egress || !d.egress && p.ingress) && p.selects(d.pod) {
				mine.policies = append(mine.policies, p)
			}
		}
		if len(mine.policies) > 0 {
			out = append(out, &mine)
		}
	}
	c.directions[d] = out
	return out
}

// decide is the first rule that matches, or the end of the tier.
func (t *tier) decide(egress bool, f *Flow) (action, string) {
	for _, p := range t.policies {
		rules := p.in
		if egress {
			rules = p.out
		}
		for i, r := range rules {
			if r.action != log && r.match(f) {
				return r.action, fmt.Sprintf("%s rule %d", p.name, i+1)
			}
		}
	}
	if t.passes {
		return pass, ""
	}
	return deny, "the end of tier " + t.name
}

// place is a set of addresses a rule speaks of.
type place func(netip.Addr) bool

func nowhere(netip.Addr) bool  { return false }
func anywhere(netip.Addr) bool { return true }

// podsWhere is where the pods are that sel selects.
func (c *Cluster) podsWhere(sel func(*pod) bool) place {
	in := map[netip.Addr]bool{}
	for _, p := range c.pods {
		if sel(p) {
			for _, a := range p.addrs {
				in[a] = true
			}
		}
	}
	return func(a netip.Addr) bool { return in[a] }
}

// either is a place or another.
func either(list []place) place {
	return func(a netip.Addr) bool {
		return slices.ContainsFunc(list, func(p place) bool { return p(a) })
	}
}

func readNets(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		p, err := readNet(text)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func inAnyNet(nets []netip.Prefix) place {
	return func(a netip.Addr) bool {
		return slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(a) })
	}
}

// JudgeEgress is the verdict of the pod a flow comes from alone; whatever does not come from a pod is allowed.
func (c *Cluster) JudgeEgress(f *Flow) Verdict { return c.egress(f) }

// JudgeIngress is the verdict of the pod a flow goes to alone; whatever does not go to a pod is allowed.
func (c *Cluster) JudgeIngress(f *Flow) Verdict {
	p := c.at[f.Dst]
	if p == nil || f.Src == f.Dst {
		return Verdict{Allowed: true, Why: "no pod to protect"}
	}
	if n := c.nodes[p.node]; n != nil && f.Node == n.name && slices.Contains(n.addrs, f.Src) {
		return Verdict{Allowed: true, Why: "from the pod's own node"}
	}
	return c.decide(direction{p, false}, f)
}
