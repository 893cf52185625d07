// Package protocol turns the calls of a CNI plugin into requests over a unix socket, and the answers back into results: the types that
// plugin and agent share, and the plugin's client.
//
// Invariant: every error of a Client is an *Error with a code of the CNI specification, whatever failed.
package protocol

import (
	"fmt"
	"net/netip"
)

// The codes of errors, from the CNI specification 1.1. A plugin's separate codes begin at 100.
const (
	CodeIncompatibleVersion uint = 1
	CodeUnsupportedField    uint = 2
	CodeUnknownContainer    uint = 3
	CodeInvalidEnvironment  uint = 4
	CodeIO                  uint = 5
	CodeDecoding            uint = 6
	CodeInvalidConfig       uint = 7
	CodeTryAgainLater       uint = 11
	CodeNotAvailable        uint = 50 // of STATUS: ADD cannot be served
	CodeLimited             uint = 51 // of STATUS: ADD can be served, and existing containers have limited connectivity
	CodeInternal            uint = 999
)

// Error is the answer to a call that failed.
type Error struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"` // one line for a user of Kubernetes
	Details string `json:"details,omitempty"`
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}

// Errorf returns an error with a code.
func Errorf(code uint, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Attachment is an interface of a container: what ADD makes and DEL removes. It is the key of all requests.
type Attachment struct {
	ContainerID string `json:"containerID"` // of the pod's sandbox
	IfName      string `json:"ifName"`      // name of the interface in the sandbox
}

// String returns "<container>/<interface>".
func (a Attachment) String() string { return a.ContainerID + "/" + a.IfName }

// Request is a call of ADD, DEL or CHECK.
type Request struct {
	Attachment
	Network string `json:"network"`         // name of the network configuration
	Netns   string `json:"netns,omitempty"` // path of the sandbox's network namespace; "" in a DEL whose namespace no longer exists
	Pod     Pod    `json:"pod"`
	MTU     int    `json:"mtu,omitempty"` // of the network configuration; 0: the agent's
	// Interface is the kind of interface that the pod asks for, by the annotation AnnotationInterface; "": the agent's.
	Interface string `json:"interface,omitempty"`
	// PortMappings and Bandwidth are the runtime's arguments. Bandwidth is nil if the pod has no limits.
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	Bandwidth    *Bandwidth    `json:"bandwidth,omitempty"`
	// IPs and Routes are those of another IPAM plugin that the network configuration names. No IPs: the agent allocates the addresses.
	IPs    []IP    `json:"ips,omitempty"`
	Routes []Route `json:"routes,omitempty"`
}

// AnnotationInterface is the annotation of a Pod with the kind of its interface: InterfaceMemif, InterfaceTap or InterfaceVeth. The agent chooses that of a pod
// without it.
const AnnotationInterface = "contiv-agent.io/interface"

// The kinds of interfaces.
const (
	InterfaceVeth  = "veth"
	InterfaceTap   = "tap"
	InterfaceMemif = "memif"
)

// Pod is the pod of a sandbox. Its fields are empty if the runtime is not Kubernetes's.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// PortMapping is a hostPort.
type PortMapping struct {
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
	Protocol      string     `json:"protocol"`        // TCP, UDP or SCTP
	HostIP        netip.Addr `json:"hostIP,omitzero"` // zero: every address of the node
}

// Bandwidth limits a pod's traffic. Ingress is what the pod receives. 0: no limit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`  // bits per second
	IngressBurst uint64 `json:"ingressBurst,omitempty"` // bits
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// Result is what an ADD made.
type Result struct {
	Interface Interface  `json:"interface"`      // in the sandbox
	Host      *Interface `json:"host,omitempty"` // its end in the node's network namespace; nil: none, as of a memif
	IPs       []IP       `json:"ips"`
	Routes    []Route    `json:"routes,omitempty"`
}

// Interface is a network interface of the kernel.
type Interface struct {
	Name    string `json:"name"`
	MAC     string `json:"mac,omitempty"`
	MTU     int    `json:"mtu,omitempty"`
	Sandbox string `json:"sandbox,omitempty"` // path of its network namespace; "": the node's
	Socket  string `json:"socket,omitempty"`  // of a memif: path of its socket
}

// IP is an address of the interface in the sandbox.
type IP struct {
	Address netip.Prefix `json:"address"`          // with the length of the subnet as the pod sees it
	Gateway netip.Addr   `json:"gateway,omitzero"` // zero: none
}

// Route is a route in the sandbox.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"` // zero: on link
	MTU         int          `json:"mtu,omitempty"`    // 0: the interface's
}
