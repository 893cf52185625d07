package podnet

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

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
	// At is when the runtime asked for it. A pod whose sandbox is made again has two attachments until the runtime deletes the first.
	At time.Time `json:"at"`
	// Given: another IPAM plugin chose the addresses.
	Given bool `json:"given,omitempty"`
	// Memif is the path of the socket of a memif interface; "": the pod has a veth or a tap.
	Memif string `json:"memif,omitempty"`
	// Tap: the pod has a tap. An attachment keeps its kind, whatever later agents prefer.
	Tap bool `json:"tap,omitempty"`
	// Ports are the node's ports that lead to the pod.
	Ports []protocol.PortMapping `json:"ports,omitempty"`
	// Bandwidth are the pod's limits; nil: none.
	Bandwidth *protocol.Bandwidth `json:"bandwidth,omitempty"`
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

// before orders the attachments of a pod: by name of the interface, then the latest first.
func (a *Attachment) before(o *Attachment) bool {
	if a.IfName != o.IfName {
		return a.IfName < o.IfName
	}
	if !a.At.Equal(o.At) {
		return a.At.After(o.At)
	}
	return strings.Compare(a.ContainerID, o.ContainerID) < 0
}

// Attached reports whether a pod is connected. It is safe for concurrent use.
func Attached(n *Network, id model.PodID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.attachmentOf(id) != nil
}

// NamespaceOf returns the path of the network namespace of a pod whose kernel has an interface. It is safe for concurrent use.
func NamespaceOf(n *Network, id model.PodID) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch a := n.attachmentOf(id); {
	case a == nil:
		return "", errors.New("it is not connected by this agent")
	case a.Memif != "":
		return "", errors.New("it has a memif, by which its kernel sends nothing")
	default:
		return a.Netns, namespaceGone(a.Netns)
	}
}

// NamespacesOf returns the paths of the network namespaces of all attachments. It is safe for concurrent use.
func NamespacesOf(n *Network) (paths []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.attached {
		paths = append(paths, a.Netns)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
