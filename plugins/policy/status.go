package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Status is the state of one policy on this node.
type Status struct {
	Policy    *model.Policy
	Endpoints []Applied // endpoints it applies to, sorted; none: this node does not need it
	Notes     []model.Note
	Refused   string // why it asks for too much, so that it denies all traffic of its endpoints; "": within limits
}

// Applied is an endpoint of this node that a policy applies to.
type Applied struct {
	Endpoint   string   // "namespace/name" of a pod, the name of a host endpoint
	Host       bool     // it is a host endpoint
	Interfaces []string // in VPP; none: not found yet. For a host endpoint, all that lead out of the node or to it, and those of pods if it evaluates packets that leave
}

// Policies lists every policy, sorted by kind, namespace and name.
func (p *Processor) Policies() []Status {
	applied := p.applied()
	if p.stream != nil {
		return p.streamedPolicies(applied)
	}
	notes := map[model.Ref][]model.Note{}
	for _, n := range p.graph.Notes() {
		notes[n.Ref] = append(notes[n.Ref], n)
	}
	var out []Status
	for ref, o := range p.items {
		if pol, ok := o.(*model.Policy); ok {
			out = append(out, Status{Policy: pol, Endpoints: applied[model.WireName{Tier: pol.Tier, Name: pol.FelixName()}], Notes: notes[ref], Refused: p.gate.Refused(pol.Ref())})
		}
	}
	slices.SortFunc(out, func(a, b Status) int { return a.Policy.ID.Compare(b.Policy.ID) })
	return out
}

// applied returns the endpoints of each policy in force.
func (p *Processor) applied() map[model.WireName][]Applied {
	out := map[model.WireName][]Applied{}
	add := func(at Applied, tiers ...[]*felix.TierInfo) {
		seen := map[model.WireName]bool{}
		for _, tier := range slices.Concat(tiers...) {
			for _, name := range slices.Concat(tier.IngressPolicies, tier.EgressPolicies) {
				if key := (model.WireName{Tier: tier.Name, Name: name}); !seen[key] {
					seen[key] = true
					out[key] = append(out[key], at)
				}
			}
		}
	}
	for name, w := range p.sent.workloads {
		add(Applied{Endpoint: name, Interfaces: p.interfacesOf(name)}, w.Tiers)
	}
	var hosts []string
	for _, name := range []string{p.translations.Node().Uplink, p.translations.Node().Overlay, p.translations.Node().Host} {
		if name != "" {
			hosts = append(hosts, name)
		}
	}
	for name, h := range p.sent.hosts {
		add(Applied{Endpoint: name, Host: true, Interfaces: hosts}, h.Tiers, h.ForwardTiers, h.UntrackedTiers, h.PreDnatTiers)
		for key := range exitsOf(h) { // also evaluated where pods send
			list := out[key]
			list[len(list)-1].Interfaces = slices.Concat(hosts, p.podInterfaces())
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b Applied) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	}
	return out
}

// exitsOf returns the policies for forwarded packets that leave by a host endpoint.
func exitsOf(h *felix.HostEndpoint) map[model.WireName]bool {
	out := map[model.WireName]bool{}
	for _, tier := range h.ForwardTiers {
		for _, name := range tier.EgressPolicies {
			out[model.WireName{Tier: tier.Name, Name: name}] = true
		}
	}
	return out
}

// PodsByInterface returns the local pods, "namespace/name", by their interfaces in VPP. For an interface of several pods it has the
// pod whose name sorts first.
func (p *Processor) PodsByInterface() map[string]string {
	out := map[string]string{}
	for name := range p.sent.workloads {
		for _, iface := range p.interfacesOf(name) {
			if was, taken := out[iface]; !taken || name < was {
				out[iface] = name
			}
		}
	}
	return out
}

// InterfacesAt returns the interfaces whose lists may decide about packets of an address: that of the local pod, as the driver knows it, or the
// uplink and the overlay, as far as the node has them, for any other, also the zero one. They lead to other nodes and the outside world.
func (p *Processor) InterfacesAt(a netip.Addr) (names []string, ofPod bool) {
	if iface := p.node.Interfaces[a]; iface != "" {
		return []string{iface}, true
	}
	return slices.DeleteFunc([]string{p.node.Uplink, p.node.Overlay}, func(name string) bool { return name == "" }), false
}

// podInterfaces returns the interfaces of all local pods, sorted.
func (p *Processor) podInterfaces() []string {
	return slices.Compact(slices.Sorted(maps.Values(p.node.Interfaces)))
}

// interfacesOf returns the interfaces of a local pod, "namespace/name".
func (p *Processor) interfacesOf(name string) []string {
	namespace, name, _ := strings.Cut(name, "/")
	pod := p.local[model.PodID{Namespace: namespace, Name: name}]
	if pod == nil {
		return nil
	}
	var out []string
	for _, a := range pod.IPs {
		if iface := p.where[a]; iface != "" && !slices.Contains(out, iface) {
			out = append(out, iface)
		}
	}
	return out
}

// IsPolicy reports whether objects of a kind are policies.
func IsPolicy(kind model.Kind) bool {
	_, ok := model.PolicyKind(kind).Info()
	return ok || model.PolicyKind(kind) == model.KindTieredPolicy
}

// sourceNotes names the invalid source annotations of local pods.
func (p *Processor) sourceNotes() (out []model.Note) {
	for _, pod := range p.local {
		if _, problem := allowedSources(pod); problem != "" {
			out = append(out, model.Note{Ref: model.Ref{Kind: model.KindPod, Namespace: pod.ID.Namespace, Name: pod.ID.Name}, Reason: problem, Refused: true})
		}
	}
	slices.SortFunc(out, func(a, b model.Note) int { return a.Ref.Compare(b.Ref) })
	return out
}

// hostNotes says that packets from the node itself do not reach its pods, because they look like packets that NAT gave the node's
// address.
func (p *Processor) hostNotes() []model.Note {
	isV4 := func(a netip.Addr) bool { return a.Is4() }
	if !p.synced || p.node.View4 != dataplane.PreDNAT || !slices.ContainsFunc(p.node.Addrs, isV4) || slices.ContainsFunc(p.node.HostAddrs, isV4) {
		return nil
	}
	return []model.Note{{
		Ref: model.Ref{Kind: model.KindNode, Name: p.cfg.NodeName}, Refused: true,
		Reason: "no host-link address is known (--host-address): what the node's own processes send from its addresses is dropped at pods with " +
			"policies, because nat44 gives these addresses to pods, too. Route the node's traffic to pods with a source address of its own, or let " +
			"its addresses in and accept that pods may use them (--trust-node-addresses)",
	}}
}

// Notes returns the notes about policies and profiles in use, sorted by object, and then those about annotations of local pods. The
// driver sends its notes to its sink.
func (p *Processor) Notes() []model.Note {
	return slices.Concat(p.graph.Notes(), p.gate.Notes(), p.hostNotes(), p.sourceNotes())
}

// Counts holds the numbers of objects in force.
type Counts struct {
	Policies  int // policies in force on this node
	Endpoints int // local pods and host endpoints
}

// Counts counts the policies and endpoints that the driver received.
func (p *Processor) Counts() Counts {
	return Counts{Policies: len(p.sent.policies), Endpoints: len(p.sent.workloads) + len(p.sent.hosts)}
}
