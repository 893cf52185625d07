package podnet

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// Attachment is a connected pod, as the file has it.
type Attachment struct {
	protocol.Attachment
	Netns     string       `json:"netns"`
	Pod       protocol.Pod `json:"pod"`
	Addresses []netip.Addr `json:"addresses"`
	MTU       int          `json:"mtu"`
	// Given: another IPAM plugin chose the addresses.
	Given bool `json:"given,omitempty"`
}

// podID names the pod in Kubernetes.
func (a *Attachment) podID() model.PodID {
	return model.PodID{Namespace: a.Pod.Namespace, Name: a.Pod.Name}
}

// iface is the logical name of the interface in VPP.
func (a *Attachment) iface() string { return interfaceName(a.podID().String(), a.Attachment) }

// peer is the name of the kernel's link that VPP reads.
func (a *Attachment) peer() string {
	name, _ := link(a.Attachment)
	return name
}
