package client

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
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

// Delete builds the deletions of a change: one method for each field of Contiv's API, and Item and Key for all models.
// Messages need only the fields of their keys.
type Delete struct{ *Change }

// Item deletes a value of any model.
func (d *Delete) Item(m proto.Message) *Delete {
	d.del(m)
	return d
}

// Key deletes the value of any model that has this key.
func (d *Delete) Key(key string) *Delete {
	if _, _, known := kv.Lookup(key); !known {
		d.failWith(fmt.Errorf("%q: %w", key, kv.ErrNoModel))
		return d
	}
	d.gone = append(d.gone, key)
	return d
}

// ACL deletes an access list.
func (d *Delete) ACL(name string) *Delete { return d.Item(&acl.ACL{Name: name}) }

// ABF deletes an ACL-based forwarding rule.
func (d *Delete) ABF(index uint32) *Delete { return d.Item(&abf.ABF{Index: index}) }

// Interface deletes an interface of VPP.
func (d *Delete) Interface(name string) *Delete { return d.Item(&interfaces.Interface{Name: name}) }

// Span deletes a mirrored interface.
func (d *Delete) Span(from, to string) *Delete {
	return d.Item(&interfaces.Span{InterfaceFrom: from, InterfaceTo: to})
}

// RuleChain deletes a chain of iptables rules.
func (d *Delete) RuleChain(name string) *Delete { return d.Item(&iptables.RuleChain{Name: name}) }

// VrfTable deletes a VRF table.
func (d *Delete) VrfTable(id uint32, protocol l3.VrfTable_Protocol) *Delete {
	return d.Item(&l3.VrfTable{Id: id, Protocol: protocol})
}

// Nat44Interface deletes NAT44 on an interface.
func (d *Delete) Nat44Interface(name string) *Delete { return d.Item(&nat.Nat44Interface{Name: name}) }

// Nat44AddressPool deletes a pool of addresses for NAT44.
func (d *Delete) Nat44AddressPool(pool *nat.Nat44AddressPool) *Delete { return d.Item(pool) }

// BridgeDomain deletes a bridge domain.
func (d *Delete) BridgeDomain(name string) *Delete { return d.Item(&l2.BridgeDomain{Name: name}) }

// FIB deletes an entry of a bridge domain's FIB.
func (d *Delete) FIB(bridgeDomain, mac string) *Delete {
	return d.Item(&l2.FIBEntry{BridgeDomain: bridgeDomain, PhysAddress: mac})
}

// XConnect deletes a cross-connect.
func (d *Delete) XConnect(receive string) *Delete {
	return d.Item(&l2.XConnectPair{ReceiveInterface: receive})
}

// StaticRoute deletes a route.
func (d *Delete) StaticRoute(route *l3.Route) *Delete { return d.Item(route) }

// ARP deletes a neighbour.
func (d *Delete) ARP(iface, addr string) *Delete {
	return d.Item(&l3.ARPEntry{Interface: iface, IpAddress: addr})
}

// ProxyARP deletes the settings of proxy ARP; only one such item exists.
func (d *Delete) ProxyARP() *Delete { return d.Item(&l3.ProxyARP{}) }

// IPScanNeighbor deletes the settings of neighbour scanning; only one such item exists.
func (d *Delete) IPScanNeighbor() *Delete { return d.Item(&l3.IPScanNeighbor{}) }

// SPD deletes a database of IPsec policies.
func (d *Delete) SPD(index uint32) *Delete {
	return d.Item(&ipsec.SecurityPolicyDatabase{Index: index})
}

// SA deletes a security association.
func (d *Delete) SA(index uint32) *Delete { return d.Item(&ipsec.SecurityAssociation{Index: index}) }

// IPRedirect deletes a redirection of punted packets.
func (d *Delete) IPRedirect(l3 punt.L3Protocol, tx string) *Delete {
	return d.Item(&punt.IPRedirect{L3Protocol: l3, TxInterface: tx})
}

// PuntToHost deletes a punt of packets to the host.
func (d *Delete) PuntToHost(l3 punt.L3Protocol, l4 punt.L4Protocol, port uint32) *Delete {
	return d.Item(&punt.ToHost{L3Protocol: l3, L4Protocol: l4, Port: port})
}

// PuntException deletes a punt of packets by exception.
func (d *Delete) PuntException(reason string) *Delete { return d.Item(&punt.Exception{Reason: reason}) }

// Nat44Global deletes the settings of NAT44; only one such item exists.
func (d *Delete) Nat44Global() *Delete { return d.Item(&nat.Nat44Global{}) }

// DNat44 deletes a set of NAT44 mappings.
func (d *Delete) DNat44(label string) *Delete { return d.Item(&nat.DNat44{Label: label}) }

// LinuxInterface deletes an interface of the host.
func (d *Delete) LinuxInterface(name string) *Delete {
	return d.Item(&linuxinterfaces.Interface{Name: name})
}

// LinuxARP deletes a neighbour of the host.
func (d *Delete) LinuxARP(iface, addr string) *Delete {
	return d.Item(&linuxl3.ARPEntry{Interface: iface, IpAddress: addr})
}

// LinuxRoute deletes a route of the host.
func (d *Delete) LinuxRoute(dst, iface string) *Delete {
	return d.Item(&linuxl3.Route{DstNetwork: dst, OutgoingInterface: iface})
}
