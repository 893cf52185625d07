package passthru

import (
	"cmp"
	"maps"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/calc/table"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Objects holds objects that go to the data plane nearly unchanged: addresses of nodes, pools, WireGuard, Services,
// and the labels of namespaces and service accounts, which arrive as profiles.
type Objects struct {
	hostV4    *table.Table[string, netip.Addr]
	hostV6    *table.Table[string, netip.Addr]
	hosts     *table.Table[string, hostMetadata]
	pools     *table.Table[string, model.Pool]
	wgV4      *table.Table[string, wireguard]
	wgV6      *table.Table[string, wireguard]
	namespace *table.Table[string, map[string]string]
	accounts  *table.Table[accountKey, map[string]string]
	services  *table.Table[model.ServiceID, *model.Service]
	bgp       *felix.GlobalBGPConfigUpdate // nil until SetBGPConfig was called
	bgpSent   *felix.GlobalBGPConfigUpdate
}

// hostMetadata is a node's addresses with their masks ("" if unknown), AS number and labels.
type hostMetadata struct {
	v4, v6, asNumber string
	labels           map[string]string
}

type wireguard struct {
	key  string
	addr netip.Addr
}

type accountKey struct{ namespace, name string }

func (k accountKey) compareTo(o accountKey) int {
	return cmp.Or(strings.Compare(k.namespace, o.namespace), strings.Compare(k.name, o.name))
}

// New returns no objects.
func New() *Objects {
	labels := maps.Equal[map[string]string, map[string]string]
	return &Objects{
		hostV4: table.New[string](table.Same[netip.Addr]), hostV6: table.New[string](table.Same[netip.Addr]),
		hosts: table.New[string](func(a, b hostMetadata) bool {
			return a.v4 == b.v4 && a.v6 == b.v6 && a.asNumber == b.asNumber && maps.Equal(a.labels, b.labels)
		}),
		pools: table.New[string](table.Same[model.Pool]),
		wgV4:  table.New[string](table.Same[wireguard]), wgV6: table.New[string](table.Same[wireguard]),
		namespace: table.New[string](labels), accounts: table.New[accountKey](labels),
		services: table.New[model.ServiceID](sameService),
	}
}

// SetHost puts a node; nil removes it.
func (x *Objects) SetHost(name string, h *model.Host) {
	if h == nil {
		x.hosts.Remove(name)
		x.hostV6.Remove(name)
		return
	}
	m := hostMetadata{asNumber: h.ASNumber, labels: h.Labels}
	if h.Net4.IsValid() {
		m.v4 = netip.PrefixFrom(h.IPv4, h.Net4.Bits()).String()
	}
	if h.Net6.IsValid() {
		m.v6 = netip.PrefixFrom(h.IPv6, h.Net6.Bits()).String()
	}
	x.hosts.Set(name, m)
	setOrRemove(x.hostV6, name, h.IPv6, h.IPv6.IsValid())
}

// SetWireguard puts a node's WireGuard keys; nil removes them.
func (x *Objects) SetWireguard(node string, w *model.Wireguard) {
	if w == nil {
		w = &model.Wireguard{}
	}
	setOrRemove(x.wgV4, node, wireguard{w.PublicKey, w.IPv4}, w.PublicKey != "")
	setOrRemove(x.wgV6, node, wireguard{w.PublicKeyV6, w.IPv6}, w.PublicKeyV6 != "")
}

// SetProfile extracts the labels of namespaces and service accounts from their profiles.
func (x *Objects) SetProfile(name string, p *model.Profile) {
	if ns, ok := model.ProfileNamespace(name); ok {
		setOrRemove(x.namespace, ns, ownLabels(p, "pcns."), p != nil)
	} else if ns, sa, ok := model.ProfileServiceAccount(name); ok {
		setOrRemove(x.accounts, accountKey{ns, sa}, ownLabels(p, "pcsa."), p != nil)
	}
}

// ownLabels are a profile's labels without the prefix, as the namespace or service account has them.
func ownLabels(p *model.Profile, prefix string) map[string]string {
	if p == nil {
		return nil
	}
	out := make(map[string]string, len(p.Labels))
	for k, v := range p.Labels {
		own, prefixed := strings.CutPrefix(k, prefix)
		if _, known := out[own]; prefixed || !known { // a label with the prefix takes precedence
			out[own] = v
		}
	}
	return out
}

// SetPool puts a pool; nil removes it.
func (x *Objects) SetPool(id string, p *model.Pool) {
	if p == nil {
		x.pools.Remove(id)
		return
	}
	x.pools.Set(id, *p)
}

// SetHostIP puts a node's IPv4 address; an invalid one removes it.
func (x *Objects) SetHostIP(node string, a netip.Addr) { setOrRemove(x.hostV4, node, a, a.IsValid()) }

// SetService puts a Service; nil removes it.
func (x *Objects) SetService(id model.ServiceID, s *model.Service) {
	setOrRemove(x.services, id, s, s != nil)
}

// Held counts what it holds, by kind.
func (x *Objects) Held() map[string]int {
	return map[string]int{
		"hostV4": x.hostV4.Held(), "hostV6": x.hostV6.Held(), "hosts": x.hosts.Held(), "pools": x.pools.Held(),
		"namespace": x.namespace.Held(), "accounts": x.accounts.Held(), "services": x.services.Held(),
		"wgV4": x.wgV4.Held(), "wgV6": x.wgV6.Held(),
	}
}

func setOrRemove[K comparable, V any](t *table.Table[K, V], k K, v V, there bool) {
	if there {
		t.Set(k, v)
	} else {
		t.Remove(k)
	}
}

// Flush returns, in Felix's order, the messages that precede routes and those that follow them.
func (x *Objects) Flush() (before, after []*felix.ToDataplane) {
	add := func(out *[]*felix.ToDataplane, updates, removes []*felix.ToDataplane) {
		*out = append(append(*out, removes...), updates...)
	}
	up, down := x.accounts.Flush(accountKey.compareTo, accountUpdate, accountRemove)
	add(&before, up, down)
	up, down = x.namespace.Flush(strings.Compare, namespaceUpdate, namespaceRemove)
	add(&before, up, down)
	up, down = x.wgV4.Flush(strings.Compare, wgUpdate, wgRemove)
	add(&after, up, down)
	up, down = x.wgV6.Flush(strings.Compare, wgUpdateV6, wgRemoveV6)
	add(&after, up, down)
	up, down = x.hostV4.Flush(strings.Compare, hostUpdate, hostRemove)
	add(&after, up, down)
	up, down = x.hostV6.Flush(strings.Compare, hostUpdateV6, hostRemoveV6)
	add(&after, up, down)
	up, down = x.hosts.Flush(strings.Compare, metadataUpdate, metadataRemove)
	add(&after, up, down)
	up, down = x.pools.Flush(strings.Compare, poolUpdate, poolRemove)
	add(&after, up, down)
	after = append(after, x.flushBGP()...)
	up, down = x.services.Flush(model.ServiceID.Compare, serviceUpdate, serviceRemove)
	add(&after, up, down)
	return before, after
}

func accountUpdate(k accountKey, labels map[string]string) *felix.ToDataplane {
	u := &felix.ServiceAccountUpdate{Id: accountID(k), Labels: labels}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ServiceAccountUpdate{ServiceAccountUpdate: u}}
}

func accountRemove(k accountKey) *felix.ToDataplane {
	r := &felix.ServiceAccountRemove{Id: accountID(k)}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_ServiceAccountRemove{ServiceAccountRemove: r}}
}

func accountID(k accountKey) *felix.ServiceAccountID {
	return &felix.ServiceAccountID{Namespace: k.namespace, Name: k.name}
}

func namespaceUpdate(name string, labels map[string]string) *felix.ToDataplane {
	u := &felix.NamespaceUpdate{Id: &felix.NamespaceID{Name: name}, Labels: labels}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_NamespaceUpdate{NamespaceUpdate: u}}
}

func namespaceRemove(name string) *felix.ToDataplane {
	r := &felix.NamespaceRemove{Id: &felix.NamespaceID{Name: name}}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_NamespaceRemove{NamespaceRemove: r}}
}

func wgUpdate(node string, w wireguard) *felix.ToDataplane {
	u := &felix.WireguardEndpointUpdate{Hostname: node, PublicKey: w.key, InterfaceIpv4Addr: addrText(w.addr)}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_WireguardEndpointUpdate{WireguardEndpointUpdate: u}}
}

func wgRemove(node string) *felix.ToDataplane {
	r := &felix.WireguardEndpointRemove{Hostname: node}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_WireguardEndpointRemove{WireguardEndpointRemove: r}}
}

func wgUpdateV6(node string, w wireguard) *felix.ToDataplane {
	u := &felix.WireguardEndpointV6Update{Hostname: node, PublicKeyV6: w.key, InterfaceIpv6Addr: addrText(w.addr)}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_WireguardEndpointV6Update{WireguardEndpointV6Update: u}}
}

func wgRemoveV6(node string) *felix.ToDataplane {
	r := &felix.WireguardEndpointV6Remove{Hostname: node}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_WireguardEndpointV6Remove{WireguardEndpointV6Remove: r}}
}

func addrText(a netip.Addr) string {
	if a.IsValid() {
		return a.String()
	}
	return ""
}

func hostUpdate(node string, a netip.Addr) *felix.ToDataplane {
	u := &felix.HostMetadataUpdate{Hostname: node, Ipv4Addr: a.String()}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_HostMetadataUpdate{HostMetadataUpdate: u}}
}

func hostRemove(node string) *felix.ToDataplane {
	r := &felix.HostMetadataRemove{Hostname: node}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_HostMetadataRemove{HostMetadataRemove: r}}
}

func hostUpdateV6(node string, a netip.Addr) *felix.ToDataplane {
	u := &felix.HostMetadataV6Update{Hostname: node, Ipv6Addr: a.String()}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_HostMetadataV6Update{HostMetadataV6Update: u}}
}

func hostRemoveV6(node string) *felix.ToDataplane {
	r := &felix.HostMetadataV6Remove{Hostname: node}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_HostMetadataV6Remove{HostMetadataV6Remove: r}}
}

func metadataUpdate(node string, m hostMetadata) *felix.ToDataplane {
	u := &felix.HostMetadataV4V6Update{
		Hostname: node, Ipv4Addr: m.v4, Ipv6Addr: m.v6, Asnumber: m.asNumber, Labels: m.labels,
	}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_HostMetadataV4V6Update{HostMetadataV4V6Update: u}}
}

func metadataRemove(node string) *felix.ToDataplane {
	r := &felix.HostMetadataV4V6Remove{Hostname: node}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_HostMetadataV4V6Remove{HostMetadataV4V6Remove: r}}
}

func poolUpdate(id string, p model.Pool) *felix.ToDataplane {
	pool := &felix.IPAMPool{Cidr: p.CIDR.String(), Masquerade: p.Masquerade, IpipMode: p.IPIPMode, VxlanMode: p.VXLANMode}
	u := &felix.IPAMPoolUpdate{Id: id, Pool: pool}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_IpamPoolUpdate{IpamPoolUpdate: u}}
}

func poolRemove(id string) *felix.ToDataplane {
	r := &felix.IPAMPoolRemove{Id: id}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_IpamPoolRemove{IpamPoolRemove: r}}
}

// SetBGP sets the BGP configuration. A removed one is sent as an empty one: Felix's protocol has no removal.
func (x *Objects) SetBGP(c *model.BGPConfig) {
	switch {
	case c != nil:
		x.bgp = &felix.GlobalBGPConfigUpdate{
			ServiceClusterCidrs: cidr.Texts(c.ServiceClusterIPs), ServiceExternalCidrs: cidr.Texts(c.ServiceExternalIPs),
			ServiceLoadbalancerCidrs: cidr.Texts(c.ServiceLoadBalancerIPs),
			LocalWorkloadPeeringIpV4: addrText(c.WorkloadPeering4), LocalWorkloadPeeringIpV6: addrText(c.WorkloadPeering6),
		}
	case x.bgp != nil:
		x.bgp = &felix.GlobalBGPConfigUpdate{}
	}
}

func (x *Objects) flushBGP() []*felix.ToDataplane {
	if x.bgp == nil || x.bgpSent != nil && proto.Equal(x.bgp, x.bgpSent) {
		return nil
	}
	x.bgpSent = x.bgp
	return []*felix.ToDataplane{{Payload: &felix.ToDataplane_GlobalBgpConfigUpdate{GlobalBgpConfigUpdate: x.bgp}}}
}
