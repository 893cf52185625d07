package client

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/keyed"
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

// Delete is a change whose next items are removed: one method for each field of Contiv's API, and Item and Key for all models. Of
// messages only what is in their keys has to be set.
type Delete struct{ *Change }

// Item is a value of any model.
func (d *Delete) Item(m proto.Message) *Delete {
	d.del(m)
	return d
}

// Key is that of a value of any model.
func (d *Delete) Key(key string) *Delete {
	if _, _, known := keyed.Lookup(key); !known {
		d.fail(fmt.Errorf("%q: %w", key, keyed.ErrNoModel))
		return d
	}
	d.gone = append(d.gone, key)
	return d
}

// ACL is an access list.
func (d *Delete) ACL(name string) *Delete { return d.Item(&acl.ACL{Name: name}) }

// ABF is a forwarding by access list.
func (d *Delete) ABF(index uint32) *Delete { return d.Item(&abf.ABF{Index: index}) }

// Interface is an interface of VPP's.
func (d *Delete) Interface(name string) *Delete { return d.Item(&interfaces.Interface{Name: name}) }

// Span is a mirrored interface.
func (d *Delete) Span(from, to string) *Delete {
	return d.Item(&interfaces.Span{InterfaceFrom: from, InterfaceTo: to})
}

// RuleChain is a chain of iptables rules.
func (d *Delete) RuleChain(name string) *Delete { return d.Item(&iptables.RuleChain{Name: name}) }

// VrfTable is a VRF table.
func (d *Delete) VrfTable(id uint32, protocol l3.VrfTable_Protocol) *Delete {
	return d.Item(&l3.VrfTable{Id: id, Protocol: protocol})
}

// Nat44Interface is NAT44 on an interface.
func (d *Delete) Nat44Interface(name string) *Delete { return d.Item(&nat.Nat44Interface{Name: name}) }

// Nat44AddressPool is a pool of addresses for NAT44.
func (d *Delete) Nat44AddressPool(pool *nat.Nat44AddressPool) *Delete { return d.Item(pool) }

// BridgeDomain is a bridge domain.
func (d *Delete) BridgeDomain(name string) *Delete { return d.Item(&l2.BridgeDomain{Name: name}) }

// FIB is an entry of a bridge domain's FIB.
func (d *Delete) FIB(bridgeDomain, mac string) *Delete {
	return d.Item(&l2.FIBEntry{BridgeDomain: bridgeDomain, PhysAddress: mac})
}

// XConnect is a cross-connect.
func (d *Delete) XConnect(receive string) *Delete {
	return d.Item(&l2.XConnectPair{ReceiveInterface: receive})
}

// StaticRoute is a route.
func (d *Delete) StaticRoute(route *l3.Route) *Delete { return d.Item(route) }

// ARP is a neighbour.
func (d *Delete) ARP(iface, addr string) *Delete {
	return d.Item(&l3.ARPEntry{Interface: iface, IpAddress: addr})
}

// ProxyARP is proxy ARP, of which there is one.
func (d *Delete) ProxyARP() *Delete { return d.Item(&l3.ProxyARP{}) }

// IPScanNeighbor is how long neighbours stay, of which there is one.
func (d *Delete) IPScanNeighbor() *Delete { return d.Item(&l3.IPScanNeighbor{}) }

// SPD is a database of IPsec policies.
func (d *Delete) SPD(index uint32) *Delete {
	return d.Item(&ipsec.SecurityPolicyDatabase{Index: index})
}

// SA is a security association.
func (d *Delete) SA(index uint32) *Delete { return d.Item(&ipsec.SecurityAssociation{Index: index}) }

// IPRedirect is punted packets that are redirected.
func (d *Delete) IPRedirect(l3 punt.L3Protocol, tx string) *Delete {
	return d.Item(&punt.IPRedirect{L3Protocol: l3, TxInterface: tx})
}

// PuntToHost is packets punted to the host.
func (d *Delete) PuntToHost(l3 punt.L3Protocol, l4 punt.L4Protocol, port uint32) *Delete {
	return d.Item(&punt.ToHost{L3Protocol: l3, L4Protocol: l4, Port: port})
}

// PuntException is packets punted by exception.
func (d *Delete) PuntException(reason string) *Delete { return d.Item(&punt.Exception{Reason: reason}) }

// Nat44Global is the settings of NAT44, of which there is one.
func (d *Delete) Nat44Global() *Delete { return d.Item(&nat.Nat44Global{}) }

// DNat44 is a set of NAT44 mappings.
func (d *Delete) DNat44(label string) *Delete { return d.Item(&nat.DNat44{Label: label}) }

// LinuxInterface is an interface of the host's.
func (d *Delete) LinuxInterface(name string) *Delete {
	return d.Item(&linuxinterfaces.Interface{Name: name})
}

// LinuxARP is a neighbour of the host's.
func (d *Delete) LinuxARP(iface, addr string) *Delete {
	return d.Item(&linuxl3.ARPEntry{Interface: iface, IpAddress: addr})
}

// LinuxRoute is a route of the host's.
func (d *Delete) LinuxRoute(dst, iface string) *Delete {
	return d.Item(&linuxl3.Route{DstNetwork: dst, OutgoingInterface: iface})
}
