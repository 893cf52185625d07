package policy

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
)

// Names Calico's conversion gives what comes from Kubernetes (v3.31, libcalico-go/lib/backend/k8s/conversion).
const (
	endpointName     = "eth0"
	namespaceProfile = "kns."
	accountProfile   = "ksa."
	labelMetadata    = "kubernetes.io/metadata.name"
)

// workloadID names the endpoint of a pod.
func workloadID(p *model.Pod) model.WorkloadID {
	return model.WorkloadID{Node: p.NodeName, Orchestrator: model.OrchestratorKubernetes, Workload: p.ID.String(), Endpoint: endpointName}
}

// hasEndpoint reports whether a pod is one policies can speak of: it is on some node, and not in the node's own network. The
// address of one that finished may be another pod's by now.
func hasEndpoint(p *model.Pod) bool {
	return p != nil && !p.HostNetwork && !p.Finished && p.NodeName != ""
}

// workload is a pod as policies see it. The interface is left open: where a pod is in VPP is known by its address.
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

// namespace is the profile of a namespace: its labels, and what happens to pods no policy selects. Nil labels are those
// of a namespace that is known by its name only.
func namespace(name string, labels map[string]string) *model.Profile {
	all := []model.Rule{{Action: model.ActionAllow}}
	p := &model.Profile{
		Name: namespaceProfile + name, Labels: prefixed(model.PrefixNamespace, labels), Rules: &model.ProfileRules{Inbound: all, Outbound: all},
	}
	p.Labels[model.PrefixNamespace+model.LabelName] = name
	if _, has := labels[labelMetadata]; !has { // the API server sees to it, a folder of manifests does not
		p.Labels[model.PrefixNamespace+labelMetadata] = name
	}
	return p
}

// profileAllow is the profile of the host endpoints that Calico makes itself (v3.31). It is there without an object.
const profileAllow = "projectcalico-default-allow"

// allowing is the profile that allows everything.
func allowing() *model.Profile {
	all := []model.Rule{{Action: model.ActionAllow}}
	return &model.Profile{Name: profileAllow, Rules: &model.ProfileRules{Inbound: all, Outbound: all}}
}

// account is the profile of a service account: labels only.
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
