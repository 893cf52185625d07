package kv

import (
	"slices"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"

	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	contivcnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	contivpolicer "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/policer"
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

// Prefixes of the models with names. Only a name follows a prefix.
const (
	hostPortPrefix       = "config/contiv/linux/v1/host-port/"
	NodePortPrefix       = "config/contiv/linux/v1/node-port/"
	cnatInterfacePrefix  = "config/contiv/vpp/v1/cnat-interface/"
	translationPrefix    = "config/contiv/vpp/v1/cnat-translation/"
	interfaceACLsPrefix  = "config/contiv/vpp/v1/interface-acls/"
	policerPrefix        = "config/contiv/vpp/v1/policer/"
	rejectRoutePrefix    = "config/contiv/vpp/v1/reject-route/"
	sctpPortsPrefix      = "config/contiv/vpp/v1/sctp-ports/"
	sourceRangesPrefix   = "config/contiv/vpp/v1/source-ranges/"
	linuxInterfacePrefix = "config/linux/interfaces/v2/interface/"
	ruleChainPrefix      = "config/linux/iptables/v2/rulechain/"
	linuxARPPrefix       = "config/linux/l3/v2/arp/"
	linuxRoutePrefix     = "config/linux/l3/v2/route/"
	abfPrefix            = "config/vpp/abfs/v2/abf/"
	aclPrefix            = "config/vpp/acls/v2/acl/"
	saPrefix             = "config/vpp/ipsec/v2/sa/"
	spdPrefix            = "config/vpp/ipsec/v2/spd/"
	bridgeDomainPrefix   = "config/vpp/l2/v2/bridge-domain/"
	l2FIBPrefix          = "config/vpp/l2/v2/fib/"
	xconnectPrefix       = "config/vpp/l2/v2/xconnect/"
	dnat44Prefix         = "config/vpp/nat/v2/dnat44/"
	nat44InterfacePrefix = "config/vpp/nat/v2/nat44-interface/"
	nat44PoolPrefix      = "config/vpp/nat/v2/nat44-pool/"
	nat44VrfPrefix       = "config/vpp/nat/v2/nat44-vrf/"
	nat44VrfRoutePrefix  = "config/vpp/nat/v2/nat44-vrf-route/"
	arpPrefix            = "config/vpp/v2/arp/"
	dhcpProxyPrefix      = "config/vpp/v2/dhcp-proxy/"
	exceptionPrefix      = "config/vpp/v2/exception/"
	interfacePrefix      = "config/vpp/v2/interfaces/"
	ipRedirectPrefix     = "config/vpp/v2/ipredirect/"
	l3xconnectPrefix     = "config/vpp/v2/l3xconnect/"
	routePrefix          = "config/vpp/v2/route/"
	spanPrefix           = "config/vpp/v2/span/"
	teibPrefix           = "config/vpp/v2/teib/"
	toHostPrefix         = "config/vpp/v2/tohost/"
	vrfTablePrefix       = "config/vpp/v2/vrf-table/"
	vrrpPrefix           = "config/vpp/v2/vrrp/"
)

// Keys of the models of which a node has at most one value.
const (
	HandoverKey       = "config/contiv/linux/v1/handover"
	NodePortsKey      = "config/contiv/linux/v1/node-ports"
	SnatPolicyKey     = "config/contiv/vpp/v1/cnat-snat-policy"
	Nat44SettingsKey  = "config/contiv/vpp/v1/nat44-settings"
	Nat44GlobalKey    = "config/vpp/nat/v2/nat44-global"
	IPScanNeighborKey = "config/vpp/v2/ipscanneigh-global"
	ProxyARPKey       = "config/vpp/v2/proxyarp-global"
)

// Model describes a kind of value: its names, its keys and its message type.
type Model struct {
	// Name is Module, a dot, and Type: "vpp.nat.dnat44".
	Name string
	// Module is the part of Prefix between class and version, with dots.
	Module string
	// Version of the key layout, "v2".
	Version string
	// Type is the kind within its module, "dnat44".
	Type string
	// Prefix of all keys; it ends with a slash unless the model has only one key.
	Prefix string
	// Proto is the full name of the message, "ligato.vpp.nat.DNat44".
	Proto string
	// New returns an empty message.
	New func() proto.Message
}

// Singleton reports whether a node has at most one such value, whose key is Prefix.
func (m Model) Singleton() bool { return !strings.HasSuffix(m.Prefix, "/") }

// Key returns the key of the value with that name. The name of a singleton is empty. Like the function Key it cleans
// the name as a path.
func (m Model) Key(name string) string {
	if m.Singleton() {
		return m.Prefix
	}
	return clean(m.Prefix + name)
}

// models is sorted by prefix and never written to. No prefix is a prefix of another.
var models = []Model{
	model[contivlinux.Handover](HandoverKey),
	model[contivlinux.HostPort](hostPortPrefix),
	model[contivlinux.NodePort](NodePortPrefix),
	model[contivlinux.NodePorts](NodePortsKey),
	model[contivcnat.Interface](cnatInterfacePrefix),
	model[contivcnat.SnatPolicy](SnatPolicyKey),
	model[contivcnat.Translation](translationPrefix),
	model[contivacl.InterfaceACLs](interfaceACLsPrefix),
	model[contivnat.Nat44Settings](Nat44SettingsKey),
	model[contivpolicer.Policer](policerPrefix),
	model[contivl3.RejectRoute](rejectRoutePrefix),
	model[contivacl.SCTPPorts](sctpPortsPrefix),
	model[contivnat.SourceRanges](sourceRangesPrefix),
	model[linuxinterfaces.Interface](linuxInterfacePrefix),
	model[iptables.RuleChain](ruleChainPrefix),
	model[linuxl3.ARPEntry](linuxARPPrefix),
	model[linuxl3.Route](linuxRoutePrefix),
	model[abf.ABF](abfPrefix),
	model[acl.ACL](aclPrefix),
	model[ipsec.SecurityAssociation](saPrefix),
	model[ipsec.SecurityPolicyDatabase](spdPrefix),
	model[l2.BridgeDomain](bridgeDomainPrefix),
	model[l2.FIBEntry](l2FIBPrefix),
	model[l2.XConnectPair](xconnectPrefix),
	model[nat.DNat44](dnat44Prefix),
	model[nat.Nat44Global](Nat44GlobalKey),
	model[nat.Nat44Interface](nat44InterfacePrefix),
	model[nat.Nat44AddressPool](nat44PoolPrefix),
	model[nat.Nat44VrfRoute](nat44VrfRoutePrefix),
	model[nat.Nat44VrfTable](nat44VrfPrefix),
	model[l3.ARPEntry](arpPrefix),
	model[l3.DHCPProxy](dhcpProxyPrefix),
	model[punt.Exception](exceptionPrefix),
	model[interfaces.Interface](interfacePrefix),
	model[punt.IPRedirect](ipRedirectPrefix),
	model[l3.IPScanNeighbor](IPScanNeighborKey),
	model[l3.L3XConnect](l3xconnectPrefix),
	model[l3.ProxyARP](ProxyARPKey),
	model[l3.Route](routePrefix),
	model[interfaces.Span](spanPrefix),
	model[l3.TeibEntry](teibPrefix),
	model[punt.ToHost](toHostPrefix),
	model[l3.VrfTable](vrfTablePrefix),
	model[l3.VRRPEntry](vrrpPrefix),
}

// model derives all fields of a Model from its prefix and type: config/<module, slashes for dots>/<version>/<type>[/].
func model[T any, P interface {
	*T
	proto.Message
}](prefix string,
) Model {
	parts := strings.Split(strings.TrimSuffix(prefix, "/"), "/")
	n := len(parts)
	m := Model{
		Module:  strings.Join(parts[1:n-2], "."),
		Version: parts[n-2],
		Type:    parts[n-1],
		Prefix:  prefix,
		Proto:   string(P(new(T)).ProtoReflect().Descriptor().FullName()),
		New:     func() proto.Message { return P(new(T)) },
	}
	m.Name = m.Module + "." + m.Type
	return m
}

// Models returns all models, sorted by prefix.
func Models() []Model { return slices.Clone(models) }

// Lookup returns the model of a key, and the name that follows the prefix (empty for a singleton). It returns false for
// keys without a model, among them a bare prefix. It does not parse the name: Check reports whether a value fits.
func Lookup(key string) (m Model, name string, ok bool) {
	// Only the last prefix that sorts before the key can be its prefix, because no prefix is a prefix of another.
	i := sort.Search(len(models), func(i int) bool { return models[i].Prefix > key }) - 1
	if i < 0 {
		return Model{}, "", false
	}
	name, ok = strings.CutPrefix(key, models[i].Prefix)
	if !ok || (name == "") != models[i].Singleton() {
		return Model{}, "", false
	}
	return models[i], name, true
}
