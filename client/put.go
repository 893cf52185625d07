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

// Put builds the items of a change to create or replace: one method for each field of Contiv's API, and Item for all
// models.
type Put struct{ *Change }

// Item puts a value of any model. Models without a field in Contiv's API are sent by the agent's other configuration
// service.
func (p *Put) Item(m proto.Message) *Put {
	p.putItem(m)
	return p
}

// ACL puts an access list.
func (p *Put) ACL(m *acl.ACL) *Put { return p.Item(m) }

// ABF puts an ACL-based forwarding rule.
func (p *Put) ABF(m *abf.ABF) *Put { return p.Item(m) }

// Interface puts an interface of VPP.
func (p *Put) Interface(m *interfaces.Interface) *Put { return p.Item(m) }

// Span puts a mirrored interface.
func (p *Put) Span(m *interfaces.Span) *Put { return p.Item(m) }

// RuleChain puts a chain of iptables rules.
func (p *Put) RuleChain(m *iptables.RuleChain) *Put { return p.Item(m) }

// VrfTable puts a VRF table.
func (p *Put) VrfTable(m *l3.VrfTable) *Put { return p.Item(m) }

// Nat44Interface puts NAT44 on an interface.
func (p *Put) Nat44Interface(m *nat.Nat44Interface) *Put { return p.Item(m) }

// Nat44AddressPool puts a pool of addresses for NAT44.
func (p *Put) Nat44AddressPool(m *nat.Nat44AddressPool) *Put { return p.Item(m) }

// BridgeDomain puts a bridge domain.
func (p *Put) BridgeDomain(m *l2.BridgeDomain) *Put { return p.Item(m) }

// FIB puts an entry of a bridge domain's FIB.
func (p *Put) FIB(m *l2.FIBEntry) *Put { return p.Item(m) }

// XConnect puts a cross-connect.
func (p *Put) XConnect(m *l2.XConnectPair) *Put { return p.Item(m) }

// StaticRoute puts a route.
func (p *Put) StaticRoute(m *l3.Route) *Put { return p.Item(m) }

// ARP puts a neighbour.
func (p *Put) ARP(m *l3.ARPEntry) *Put { return p.Item(m) }

// ProxyARP puts the settings of proxy ARP; only one such item exists.
func (p *Put) ProxyARP(m *l3.ProxyARP) *Put { return p.Item(m) }

// IPScanNeighbor puts the settings of neighbour scanning; only one such item exists.
func (p *Put) IPScanNeighbor(m *l3.IPScanNeighbor) *Put { return p.Item(m) }

// SPD puts a database of IPsec policies.
func (p *Put) SPD(m *ipsec.SecurityPolicyDatabase) *Put { return p.Item(m) }

// SA puts a security association.
func (p *Put) SA(m *ipsec.SecurityAssociation) *Put { return p.Item(m) }

// IPRedirect puts a redirection of punted packets.
func (p *Put) IPRedirect(m *punt.IPRedirect) *Put { return p.Item(m) }

// PuntToHost puts a punt of packets to the host.
func (p *Put) PuntToHost(m *punt.ToHost) *Put { return p.Item(m) }

// PuntException puts a punt of packets by exception.
func (p *Put) PuntException(m *punt.Exception) *Put { return p.Item(m) }

// Nat44Global puts the settings of NAT44; only one such item exists.
func (p *Put) Nat44Global(m *nat.Nat44Global) *Put { return p.Item(m) }

// DNat44 puts a set of NAT44 mappings.
func (p *Put) DNat44(m *nat.DNat44) *Put { return p.Item(m) }

// LinuxInterface puts an interface of the host.
func (p *Put) LinuxInterface(m *linuxinterfaces.Interface) *Put { return p.Item(m) }

// LinuxARP puts a neighbour of the host.
func (p *Put) LinuxARP(m *linuxl3.ARPEntry) *Put { return p.Item(m) }

// LinuxRoute puts a route of the host.
func (p *Put) LinuxRoute(m *linuxl3.Route) *Put { return p.Item(m) }
