package policy

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
)

// Names that Calico's conversion gives to Kubernetes objects (v3.31, libcalico-go/lib/backend/k8s/conversion).
const (
	endpointName     = "eth0"
	namespaceProfile = "kns."
	accountProfile   = "ksa."
	labelMetadata    = "kubernetes.io/metadata.name"
)

// workloadID returns the name of a pod's endpoint.
func workloadID(p *model.Pod) model.WorkloadID {
	return model.WorkloadID{Node: p.NodeName, Orchestrator: model.OrchestratorKubernetes, Workload: p.ID.String(), Endpoint: endpointName}
}

// hasEndpoint reports whether policies can apply to a pod: it is scheduled to a node and not in the node's network. A finished pod
// has no endpoint, because another pod may already have its address.
func hasEndpoint(p *model.Pod) bool {
	return p != nil && !p.HostNetwork && !p.Finished && p.NodeName != ""
}

// workload returns the endpoint of a pod. The interface stays empty: the driver finds it by the pod's address.
func workload(p *model.Pod) *model.WorkloadEndpoint {
	labels := make(map[string]string, len(p.Labels)+3)
	for k, v := range p.Labels {
		labels[k] = v
	}
	labels[model.LabelNamespace], labels[model.LabelOrchestrator] = p.ID.Namespace, model.OrchestratorKubernetes
	if p.ServiceAccount != "" {
		labels[model.LabelServiceAccount] = p.ServiceAccount
	}
	w := &model.WorkloadEndpoint{
		ID: workloadID(p), State: "active", Labels: labels, Ports: p.Ports, Profiles: profilesOf(p),
		Nets: make([]netip.Prefix, len(p.IPs)),
	}
	for i, a := range p.IPs {
		w.Nets[i] = netip.PrefixFrom(a, a.BitLen())
	}
	w.AllowSpoofedSources, _ = allowedSources(p)
	return w
}

func profilesOf(p *model.Pod) []string {
	list := []string{namespaceProfile + p.ID.Namespace}
	if p.ServiceAccount != "" {
		list = append(list, accountProfile+p.ID.Namespace+"."+p.ServiceAccount)
	}
	return list
}

// namespace returns the profile of a namespace: its labels, and the rules for pods that no policy selects. Nil labels belong to a
// namespace that is known by its name only.
func namespace(name string, labels map[string]string) *model.Profile {
	all := []model.Rule{{Action: model.ActionAllow}}
	p := &model.Profile{
		Name: namespaceProfile + name, Labels: prefixed(model.PrefixNamespace, labels), Rules: &model.ProfileRules{Inbound: all, Outbound: all},
	}
	p.Labels[model.PrefixNamespace+model.LabelName] = name
	if _, has := labels[labelMetadata]; !has { // the API server sets this label; a folder of manifests does not
		p.Labels[model.PrefixNamespace+labelMetadata] = name
	}
	return p
}

// profileAllow is the profile of the host endpoints that Calico itself makes (v3.31). It exists without an object.
const profileAllow = "projectcalico-default-allow"

// allowing returns the profile that allows everything.
func allowing() *model.Profile {
	all := []model.Rule{{Action: model.ActionAllow}}
	return &model.Profile{Name: profileAllow, Rules: &model.ProfileRules{Inbound: all, Outbound: all}}
}

// account returns the profile of a service account, which has labels only.
func account(ns, name string, labels map[string]string) *model.Profile {
	p := &model.Profile{Name: accountProfile + ns + "." + name, Labels: prefixed(model.PrefixServiceAccount, labels), Rules: &model.ProfileRules{}}
	p.Labels[model.PrefixServiceAccount+model.LabelName] = name
	return p
}

func prefixed(prefix string, labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels)+2)
	for k, v := range labels {
		out[prefix+k] = v
	}
	return out
}
