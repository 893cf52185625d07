package client

import (
	"google.golang.org/protobuf/proto"

	linuxinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/iptables"
	linuxl3 "github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/abf"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/ipsec"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
)

// Put is a change whose next items are created or replaced: one method for each field of Contiv's API, and Item for all models.
type Put struct{ *Change }

// Item is a value of any model. What Contiv's API has no field for goes by another service of the agent's.
func (p *Put) Item(m proto.Message) *Put {
	p.put(m)
	return p
}

// ACL is an access list.
func (p *Put) ACL(m *acl.ACL) *Put { return p.Item(m) }

// ABF is a forwarding by access list.
func (p *Put) ABF(m *abf.ABF) *Put { return p.Item(m) }

// Interface is an interface of VPP's.
func (p *Put) Interface(m *interfaces.Interface) *Put { return p.Item(m) }

// Span is a mirrored interface.
func (p *Put) Span(m *interfaces.Span) *Put { return p.Item(m) }

// RuleChain is a chain of iptables rules.
func (p *Put) RuleChain(m *iptables.RuleChain) *Put { return p.Item(m) }

// VrfTable is a VRF table.
func (p *Put) VrfTable(m *l3.VrfTable) *Put { return p.Item(m) }

// Nat44Interface is NAT44 on an interface.
func (p *Put) Nat44Interface(m *nat.Nat44Interface) *Put { return p.Item(m) }

// Nat44AddressPool is a pool of addresses for NAT44.
func (p *Put) Nat44AddressPool(m *nat.Nat44AddressPool) *Put { return p.Item(m) }

// BridgeDomain is a bridge domain.
func (p *Put) BridgeDomain(m *l2.BridgeDomain) *Put { return p.Item(m) }

// FIB is an entry of a bridge domain's FIB.
func (p *Put) FIB(m *l2.FIBEntry) *Put { return p.Item(m) }

// XConnect is a cross-connect.
func (p *Put) XConnect(m *l2.XConnectPair) *Put { return p.Item(m) }

// StaticRoute is a route.
func (p *Put) StaticRoute(m *l3.Route) *Put { return p.Item(m) }

// ARP is a neighbour.
func (p *Put) ARP(m *l3.ARPEntry) *Put { return p.Item(m) }

// ProxyARP is proxy ARP, of which there is one.
func (p *Put) ProxyARP(m *l3.ProxyARP) *Put { return p.Item(m) }

// IPScanNeighbor is how long neighbours stay, of which there is one.
func (p *Put) IPScanNeighbor(m *l3.IPScanNeighbor) *Put { return p.Item(m) }

// SPD is a database of IPsec policies.
func (p *Put) SPD(m *ipsec.SecurityPolicyDatabase) *Put { return p.Item(m) }

// SA is a security association.
func (p *Put) SA(m *ipsec.SecurityAssociation) *Put { return p.Item(m) }

// IPRedirect is punted packets that are redirected.
func (p *Put) IPRedirect(m *punt.IPRedirect) *Put { return p.Item(m) }

// PuntToHost is packets punted to the host.
func (p *Put) PuntToHost(m *punt.ToHost) *Put { return p.Item(m) }

// PuntException is packets punted by exception.
func (p *Put) PuntException(m *punt.Exception) *Put { return p.Item(m) }

// Nat44Global is the settings of NAT44, of which there is one.
func (p *Put) Nat44Global(m *nat.Nat44Global) *Put { return p.Item(m) }

// DNat44 is a set of NAT44 mappings.
func (p *Put) DNat44(m *nat.DNat44) *Put { return p.Item(m) }

// LinuxInterface is an interface of the host's.
func (p *Put) LinuxInterface(m *linuxinterfaces.Interface) *Put { return p.Item(m) }

// LinuxARP is a neighbour of the host's.
func (p *Put) LinuxARP(m *linuxl3.ARPEntry) *Put { return p.Item(m) }

// LinuxRoute is a route of the host's.
func (p *Put) LinuxRoute(m *linuxl3.Route) *Put { return p.Item(m) }
