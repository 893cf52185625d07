package interop

import (
	"math"
	"net/netip"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	"github.com/projectcalico/calico/lib/std/uniquelabels"
	nodes "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	v1 "github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
)

// Change is one change of the cluster, in the form either graph takes.
type Change struct {
	Key   string // the kind and the name of what changes
	Gone  bool   // it is taken away
	Ours  func(*calc.Graph)
	Felix []api.Update
}

func change(key string, ours func(*calc.Graph), felix ...api.Update) Change {
	key, gone := strings.CutPrefix(key, "no ")
	return Change{Key: key, Gone: gone, Ours: ours, Felix: felix}
}

// String is for a reader who wants to know how a state came to be.
func (c Change) String() string {
	if c.Gone {
		return "no " + c.Key
	}
	return c.Key
}

// put is an update of Felix's; nil deletes.
func put(key v1.Key, value any) api.Update {
	kind := api.UpdateTypeKVUpdated
	if value == nil {
		kind = api.UpdateTypeKVDeleted
	}
	return api.Update{KVPair: v1.KVPair{Key: key, Value: value}, UpdateType: kind}
}

// Workload changes a workload endpoint; nil takes it away.
func Workload(id model.WorkloadID, w *model.WorkloadEndpoint) Change {
	key := v1.WorkloadEndpointKey{
		Hostname: id.Node, OrchestratorID: id.Orchestrator, WorkloadID: id.Workload, EndpointID: id.Endpoint,
	}
	ours := func(g *calc.Graph) { g.SetWorkload(id, w) }
	if w == nil {
		return change("no workload "+id.String(), ours, put(key, nil))
	}
	v4, v6 := split(w.Nets)
	value := &v1.WorkloadEndpoint{
		State: w.State, Name: w.Interface, ProfileIDs: w.Profiles, IPv4Nets: v4, IPv6Nets: v6,
		Labels: uniquelabels.Make(w.Labels), Ports: namedPorts(w.Ports), Annotations: w.Annotations,
		AllowSpoofedSourcePrefixes: netList(w.AllowSpoofedSources),
	}
	if w.MAC != "" {
		mac := &net.MAC{}
		if err := mac.UnmarshalJSON([]byte(`"` + w.MAC + `"`)); err != nil {
			panic(err)
		}
		value.Mac = mac
	}
	value.QoSControls = qos(w.QoS)
	for _, n := range w.NAT {
		nat := v1.IPNAT{IntIP: ip(n.Internal), ExtIP: ip(n.External)}
		if n.Internal.Is4() {
			value.IPv4NAT = append(value.IPv4NAT, nat)
		} else {
			value.IPv6NAT = append(value.IPv6NAT, nat)
		}
	}
	return change("workload "+id.String(), ours, put(key, value))
}

// HostEndpoint changes a host endpoint; nil takes it away.
func HostEndpoint(id model.HostEndpointID, h *model.HostEndpoint) Change {
	key := v1.HostEndpointKey{Hostname: id.Node, EndpointID: id.Name}
	ours := func(g *calc.Graph) { g.SetHostEndpoint(id, h) }
	if h == nil {
		return change("no host endpoint "+id.String(), ours, put(key, nil))
	}
	value := &v1.HostEndpoint{
		Name: h.Interface, ProfileIDs: h.Profiles, Labels: uniquelabels.Make(h.Labels), Ports: namedPorts(h.Ports),
		QoSControls: qos(h.QoS),
	}
	for _, a := range h.Addrs {
		if a.Is4() {
			value.ExpectedIPv4Addrs = append(value.ExpectedIPv4Addrs, ip(a))
		} else {
			value.ExpectedIPv6Addrs = append(value.ExpectedIPv6Addrs, ip(a))
		}
	}
	return change("host endpoint "+id.String(), ours, put(key, value))
}

// NetworkSet changes a network set; nil takes it away.
func NetworkSet(name string, n *model.NetworkSet) Change {
	key := v1.NetworkSetKey{Name: name}
	ours := func(g *calc.Graph) { g.SetNetworkSet(name, n) }
	if n == nil {
		return change("no network set "+name, ours, put(key, nil))
	}
	return change("network set "+name, ours, put(key, &v1.NetworkSet{
		Nets: netList(n.Nets), Labels: uniquelabels.Make(n.Labels), ProfileIDs: n.Profiles,
	}))
}

// Tier changes a tier; nil takes it away.
func Tier(name string, t *model.Tier) Change {
	key := v1.TierKey{Name: name}
	ours := func(g *calc.Graph) { g.SetTier(name, t) }
	if t == nil {
		return change("no tier "+name, ours, put(key, nil))
	}
	return change("tier "+name, ours, put(key, &v1.Tier{Order: order(t.Order), DefaultAction: apiv3.Action(t.DefaultAction)}))
}

// Profile changes a profile; nil takes it away. Felix has its labels and its rules under two keys.
func Profile(name string, p *model.Profile) Change {
	labels := v1.ResourceKey{Kind: apiv3.KindProfile, Name: name}
	rules := v1.ProfileRulesKey{ProfileKey: v1.ProfileKey{Name: name}}
	ours := func(g *calc.Graph) { g.SetProfile(name, p) }
	if p == nil {
		return change("no profile "+name, ours, put(labels, nil), put(rules, nil))
	}
	value := apiv3.NewProfile()
	value.Name, value.Spec.LabelsToApply = name, p.Labels
	rulesUpdate := put(rules, nil)
	if p.Rules != nil {
		rulesUpdate = put(rules, &v1.ProfileRules{
			InboundRules: ruleList(p.Rules.Inbound), OutboundRules: ruleList(p.Rules.Outbound),
		})
	}
	return change("profile "+name, ours, put(labels, value), rulesUpdate)
}

// Policy changes a policy from old to now; either may be nil. Up to v3.31 the tier is part of Felix's key, so a policy
// that moves is a deletion and an addition there.
func Policy(id model.PolicyID, old, now *model.Policy) Change {
	c := change("no policy "+id.String(), func(g *calc.Graph) { g.SetPolicy(id, now) })
	if old != nil && (now == nil || policyKey(old) != policyKey(now)) {
		c.Felix = append(c.Felix, put(policyKey(old), nil))
	}
	if now == nil {
		return c
	}
	c.Gone = false
	value := &v1.Policy{
		Namespace: now.Namespace, Order: order(now.Order), Selector: now.Selector,
		InboundRules: ruleList(now.InboundRules), OutboundRules: ruleList(now.OutboundRules),
		DoNotTrack: now.Untracked, PreDNAT: now.PreDNAT, ApplyOnForward: now.ApplyOnForward,
	}
	if now.Ingress {
		value.Types = append(value.Types, "ingress")
	}
	if now.Egress {
		value.Types = append(value.Types, "egress")
	}
	if now.Everywhere {
		value.PerformanceHints = []apiv3.PolicyPerformanceHint{apiv3.PerfHintAssumeNeededOnEveryNode}
	}
	c.Felix = append(c.Felix, put(policyKey(now), value))
	return c
}

func policyKey(p *model.Policy) v1.PolicyKey { return v1.PolicyKey{Tier: p.Tier, Name: p.FelixName()} }

func order(o model.Order) *float64 {
	if !o.Set {
		return nil
	}
	v := o.Value
	if math.IsInf(v, 1) {
		return nil
	}
	return &v
}

func ip(a netip.Addr) net.IP { return net.IP{IP: a.AsSlice()} }

func ipPointer(a netip.Addr) *net.IP {
	if !a.IsValid() {
		return nil
	}
	p := ip(a)
	return &p
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.MustParseNetwork(p.Masked().String())
}

func netList(list []netip.Prefix) (out []net.IPNet) {
	for _, p := range list {
		out = append(out, ipNet(p))
	}
	return out
}

func split(list []netip.Prefix) (v4, v6 []net.IPNet) {
	for _, p := range list {
		if p.Addr().Is4() {
			v4 = append(v4, ipNet(p))
		} else {
			v6 = append(v6, ipNet(p))
		}
	}
	return v4, v6
}

func namedPorts(list []model.NamedPort) (out []v1.EndpointPort) {
	for _, p := range list {
		out = append(out, v1.EndpointPort{
			Name: p.Name, Port: p.Port, Protocol: protocolNamed(strings.ToLower(p.Protocol.String())),
		})
	}
	return out
}

func qos(q *model.QoS) *nodes.QoSControls {
	if q == nil {
		return nil
	}
	in, out := q.Ingress, q.Egress
	value := &nodes.QoSControls{
		IngressBandwidth: in.Bandwidth, IngressBurst: in.Burst, IngressPeakrate: in.PeakRate, IngressMinburst: in.MinBurst,
		IngressPacketRate: in.PacketRate, IngressPacketBurst: in.PacketBurst, IngressMaxConnections: in.MaxConnections,
		EgressBandwidth: out.Bandwidth, EgressBurst: out.Burst, EgressPeakrate: out.PeakRate, EgressMinburst: out.MinBurst,
		EgressPacketRate: out.PacketRate, EgressPacketBurst: out.PacketBurst, EgressMaxConnections: out.MaxConnections,
	}
	if q.HasDSCP {
		dscp := numorstring.DSCPFromInt(q.DSCP)
		value.DSCP = &dscp
	}
	return value
}
