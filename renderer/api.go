package renderer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
)

// ServiceRendererAPI is the interface of a renderer of Services. Several may be active; each receives the same data. All calls
// come from one goroutine. The caller reports an error on its Service, and repeats the call later.
//
// After Resync the renderer shall be in the state that the other calls would have led to, regardless of its state before.
type ServiceRendererAPI interface {
	// AddService is called for a new Service.
	AddService(service *ContivService) error

	// UpdateService is called when anything in a Service changed. Other services are passed for renderers in which Services share
	// state; do not change or keep the slice.
	UpdateService(oldService, newService *ContivService, otherExistingServices []*ContivService) error

	// DeleteService is called for a Service that was deleted, or is not to be rendered any more.
	DeleteService(service *ContivService, otherExistingServices []*ContivService) error

	// UpdateNodePortServices is called when the addresses of the cluster's nodes changed, with all services that have
	// a node port.
	UpdateNodePortServices(nodeIPs *IPAddresses, npServices []*ContivService) error

	// UpdateLocalFrontendIfs is called when the set of interfaces through which clients reach VPP changed.
	UpdateLocalFrontendIfs(oldIfNames, newIfNames Interfaces) error

	// UpdateLocalBackendIfs is called when the set of interfaces through which VPP reaches endpoints changed.
	UpdateLocalBackendIfs(oldIfNames, newIfNames Interfaces) error

	// Resync passes the whole state; the renderer must remove everything else that it has rendered.
	Resync(resyncEv *ResyncEventData) error
}

// NodeRenderer is an optional interface of renderers that need the state of the node. UpdateNode is called before Resync, and
// whenever the state changed.
type NodeRenderer interface {
	UpdateNode(node NodeState) error
}

// PortionRenderer is an optional interface of renderers that can take a resync in portions, so that VPP works on the first while
// the next are rendered.
type PortionRenderer interface {
	// ResyncInPortions is Resync, but defers Services to the calls that it returns. The caller makes them one after the other and
	// before any other call of the renderer. Values that all Services stand on are rendered before it returns.
	ResyncInPortions(resyncEv *ResyncEventData) (portions []func(), err error)
}

// ServiceListener observes Services and renders nothing. adapter.Listen makes it a ServiceRendererAPI. It may implement NodeRenderer
// and NodeIPsListener as well.
type ServiceListener interface {
	// ServiceChanged reports a Service that was added (old is nil), changed, or removed (now is nil).
	ServiceChanged(old, now *ContivService)
}

// NodeIPsListener is implemented by listeners that need the addresses of all nodes of the cluster.
type NodeIPsListener interface {
	// NodeIPsChanged passes all addresses. It is called before the first ServiceChanged of a resync.
	NodeIPsChanged(nodeIPs *IPAddresses)
}

// NodeState is the state of this node and its place in the cluster. Empty fields are unknown, or do not exist.
type NodeState struct {
	Name         string
	IPs          []netip.Addr   // this node's addresses, internal ones first
	PodCIDRs     []netip.Prefix // this node's
	ServiceCIDRs []netip.Prefix // of the cluster, sorted
	Uplink       string         // interface to the outside; "": none is known
	ByHost       bool           // Uplink is "", and packets from and to the outside cross Host: the node's network stack has the node's addresses
	UplinkIPs    []netip.Prefix // its addresses
	Overlay      string         // interface towards pods of other nodes, if it is not the uplink
	Host         string         // interface to the node's network stack
	HostIPs      []netip.Addr   // at the other end of Host, none of them an address of this node or its uplink; sorted
	Loopback     netip.Addr     // IPv4 address that stands in for a client whose address cannot be kept; no pod has it

	Remote []RemoteNode // the other nodes of the cluster, sorted by name

	// NoNodePorts are the addresses of this and other nodes that node ports are not served on, sorted; nil: they are on all.
	NoNodePorts []netip.Addr

	Refusal Refusal // who refuses packets to addresses of Services in VPP's place
}

// Refusal names neighbours of VPP that refuse packets in its place, with answers that VPP does not have: a reset, or ICMP "port unreachable". The
// zero value: VPP refuses them itself, with ICMP "host unreachable".
type Refusal struct {
	Interface  string
	IPv4, IPv6 netip.Addr // of the neighbours; zero: none
}

// Neighbour returns the neighbour of a family, "" if none.
func (r Refusal) Neighbour(v6 bool) (iface, addr string) {
	a := r.IPv4
	if v6 {
		a = r.IPv6
	}
	if !a.IsValid() {
		return "", ""
	}
	return r.Interface, a.String()
}

// RemoteNode is another node of the cluster. Empty fields are unknown.
type RemoteNode struct {
	Name     string         // as BackendNode.Node has it
	IPs      []netip.Addr   // its addresses, internal ones first
	PodCIDRs []netip.Prefix // of its pods
}

// Equal reports whether both have equal fields.
func (n RemoteNode) Equal(o RemoteNode) bool {
	return n.Name == o.Name && slices.Equal(n.IPs, o.IPs) && slices.Equal(n.PodCIDRs, o.PodCIDRs)
}

// RemotePodCIDRs returns the pod CIDRs of all other nodes, sorted.
func (n NodeState) RemotePodCIDRs() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range n.Remote {
		out = append(out, r.PodCIDRs...)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// ServesNodePorts reports whether node ports are served on an address of a node.
func (n NodeState) ServesNodePorts(a netip.Addr) bool {
	_, not := slices.BinarySearchFunc(n.NoNodePorts, a, netip.Addr.Compare)
	return !not
}

// ResyncEventData is the whole state of the processor.
type ResyncEventData struct {
	// NodeIPs are the addresses of all nodes of the cluster.
	NodeIPs *IPAddresses

	// Services are all services to be rendered, sorted by namespace and name.
	Services []*ContivService

	// FrontendIfs are the interfaces through which clients reach VPP.
	FrontendIfs Interfaces

	// BackendIfs are the interfaces through which VPP reaches endpoints.
	BackendIfs Interfaces
}

// NewResyncEventData returns an empty state, ready to be filled.
func NewResyncEventData() *ResyncEventData {
	return &ResyncEventData{
		NodeIPs:     NewIPAddresses(),
		FrontendIfs: NewInterfaces(),
		BackendIfs:  NewInterfaces(),
	}
}

// String is one line for the node and one for each service.
func (red ResyncEventData) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "nodes %s frontends %s backends %s services %d", red.NodeIPs, red.FrontendIfs, red.BackendIfs, len(red.Services))
	for _, svc := range red.Services {
		b.WriteString("\n  " + svc.String())
	}
	return b.String()
}

// Sink takes the desired values of a renderer. Set replaces all values that the owner wanted before; nil values and nil notes
// remove the owner. The sink owns the maps and messages from then on. The controller implements it.
type Sink interface {
	Set(owner string, values map[string]proto.Message, notes []model.Note)
}
