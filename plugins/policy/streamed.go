package policy

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Endpoint is an endpoint of this node from an external calculation graph.
type Endpoint struct {
	Workload   *felix.WorkloadEndpointID // nil: it is a host endpoint
	Message    *felix.WorkloadEndpoint
	Host       string   // name of a host endpoint
	Active     bool     // it is not administratively down
	Interfaces []string // in VPP; none: not found. For a host endpoint, all that lead out of the node or to it
	Asked      bool     // VPP has not looked up the interfaces yet, or did not answer
}

// EndpointsVersion changes whenever the result of Endpoints may change.
func (p *Processor) EndpointsVersion() uint64 {
	if p.stream == nil {
		return 0
	}
	if !p.synced { // VPP's first answer may take long
		p.stream.absorb()
	}
	return p.stream.version
}

// Endpoints lists, in a fixed order, the endpoints that the driver received or will receive with the first sync.
func (p *Processor) Endpoints() []Endpoint {
	if p.stream == nil {
		return nil
	}
	if !p.synced { // VPP's first answer may take long
		p.stream.absorb()
	}
	out := make([]Endpoint, 0, len(p.stream.endpoints)+len(p.sent.hosts))
	for _, key := range slices.SortedFunc(maps.Keys(p.stream.endpoints), endpointID.compare) {
		e := p.stream.endpoints[key]
		at := Endpoint{Workload: e.id, Message: e.msg, Active: e.msg.GetState() == "active", Asked: p.stream.waiting()}
		for _, a := range e.addrs {
			if name := p.where[a]; name != "" && !slices.Contains(at.Interfaces, name) {
				at.Interfaces = append(at.Interfaces, name)
			}
		}
		if name := p.names[e.pod.String()]; name != "" && len(e.addrs) == 0 {
			at.Interfaces = append(at.Interfaces, name)
		}
		out = append(out, at)
	}
	for _, name := range slices.Sorted(maps.Keys(p.sent.hosts)) {
		at := Endpoint{Host: name, Active: true}
		for _, i := range []string{p.node.Uplink, p.node.Overlay, p.node.Host} {
			if i != "" && !slices.Contains(at.Interfaces, i) {
				at.Interfaces = append(at.Interfaces, i)
			}
		}
		out = append(out, at)
	}
	return out
}

// streamedPolicies returns the policies in force, in the order of Policies.
func (p *Processor) streamedPolicies(applied map[model.WireName][]Applied) []Status {
	var out []Status
	for key, msg := range p.sent.policies {
		pol := &model.Policy{
			ID: model.PolicyIDOf(key.Tier, key.Name), Tier: key.Tier, Untracked: msg.GetUntracked(), PreDNAT: msg.GetPreDnat(),
			InboundRules: writtenAll(msg.GetInboundRules()), OutboundRules: writtenAll(msg.GetOutboundRules()),
		}
		for _, in := range []bool{true, false} {
			for _, at := range applied[key] {
				for _, tier := range slices.Concat(p.sent.tiers(at.Endpoint, at.Host, false), p.sent.tiers(at.Endpoint, at.Host, true)) {
					if tier.GetName() == key.Tier && slices.Contains(policiesOf(tier, !in), key.Name) {
						pol.Ingress, pol.Egress = pol.Ingress || in, pol.Egress || !in
					}
				}
			}
		}
		out = append(out, Status{Policy: pol, Endpoints: applied[key], Refused: p.gate.Refused(pol.ID.Ref())})
	}
	slices.SortFunc(out, func(a, b Status) int { return a.Policy.ID.Compare(b.Policy.ID) })
	return out
}
