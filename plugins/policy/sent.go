package policy

import (
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// sent holds the last messages sent to the driver, for queries about verdicts. It refers to the messages themselves.
type sent struct {
	workloads map[string]*felix.WorkloadEndpoint // by "namespace/name"
	hosts     map[string]*felix.HostEndpoint
	policies  map[model.WireName]*felix.Policy
	profiles  map[string]*felix.Profile
}

func newSent() *sent {
	return &sent{
		workloads: map[string]*felix.WorkloadEndpoint{}, hosts: map[string]*felix.HostEndpoint{},
		policies: map[model.WireName]*felix.Policy{}, profiles: map[string]*felix.Profile{},
	}
}

func (t *sent) record(m *felix.ToDataplane) {
	switch m := m.Payload.(type) {
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		t.workloads[m.WorkloadEndpointUpdate.Id.WorkloadId] = m.WorkloadEndpointUpdate.Endpoint
	case *felix.ToDataplane_WorkloadEndpointRemove:
		delete(t.workloads, m.WorkloadEndpointRemove.Id.WorkloadId)
	case *felix.ToDataplane_HostEndpointUpdate:
		t.hosts[m.HostEndpointUpdate.Id.EndpointId] = m.HostEndpointUpdate.Endpoint
	case *felix.ToDataplane_HostEndpointRemove:
		delete(t.hosts, m.HostEndpointRemove.Id.EndpointId)
	case *felix.ToDataplane_ActivePolicyUpdate:
		id := m.ActivePolicyUpdate.Id
		t.policies[model.WireName{Tier: id.Tier, Name: id.Name}] = m.ActivePolicyUpdate.Policy
	case *felix.ToDataplane_ActivePolicyRemove:
		id := m.ActivePolicyRemove.Id
		delete(t.policies, model.WireName{Tier: id.Tier, Name: id.Name})
	case *felix.ToDataplane_ActiveProfileUpdate:
		t.profiles[m.ActiveProfileUpdate.Id.Name] = m.ActiveProfileUpdate.Profile
	case *felix.ToDataplane_ActiveProfileRemove:
		delete(t.profiles, m.ActiveProfileRemove.Id.Name)
	}
}

// tiers returns the tiers of an endpoint, in order; forward: those for forwarded traffic of a host endpoint.
func (t *sent) tiers(endpoint string, host, forward bool) []*felix.TierInfo {
	switch {
	case !host:
		return t.workloads[endpoint].GetTiers()
	case forward:
		return t.hosts[endpoint].GetForwardTiers()
	}
	return t.hosts[endpoint].GetTiers()
}

func policiesOf(t *felix.TierInfo, egress bool) []string {
	if egress {
		return t.GetEgressPolicies()
	}
	return t.GetIngressPolicies()
}

// rulesOf returns the rules of a policy or profile for a direction.
func rulesOf(x interface {
	GetInboundRules() []*felix.Rule
	GetOutboundRules() []*felix.Rule
}, egress bool,
) []*felix.Rule {
	if egress {
		return x.GetOutboundRules()
	}
	return x.GetInboundRules()
}
