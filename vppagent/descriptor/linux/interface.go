package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/ifaces"
)

const (
	maxName    = 15   // of a link
	defaultMTU = 1500 // of the links we make
)

// iface is an interface of the host.
type iface struct {
	name, namespace, host string
	typ                   interfaces.Interface_Type
	enabled               bool
	mac                   string // "": unchanged
	mtu                   uint32 // 0: unchanged
	linkOnly              bool   // another owner sets its addresses
	addresses             []netip.Prefix
	peer                  string // of a veth
	wholeChecksums        bool   // of a veth: the kernel computes checksums itself before it passes packets on
	tap                   string // of a tap: logical name of VPP's side
}

// Interface describes ligato's Interface of the host: an end of a veth, VPP's tap, a dummy, a loopback, and an existing link.
//
// An end of a veth does not wait for its peer: the peer is a spare without a final name until a value wants it, and becomes a spare again
// after that value is removed.
func Interface() *descriptor.Descriptor {
	return descriptor.Spec[*interfaces.Interface, *iface]{
		Name: "linux-interface", Prefix: "config/linux/interfaces/v2/interface/",
		Compile: compileInterface, Message: (*iface).interfaceMessage,
		Equal: func(have, want *iface) bool {
			return !recreateInterface(have, want) && have.enabled == want.enabled && (want.mac == "" || have.mac == want.mac) &&
				(want.mtu == 0 || have.mtu == want.mtu) && have.wholeChecksums == want.wholeChecksums && (want.linkOnly || slices.Equal(have.addresses, want.addresses))
		},
		Dependencies: func(i *iface) []descriptor.Dependency {
			if i.tap == "" {
				return nil
			}
			return []descriptor.Dependency{{Key: kv.InterfaceKey(i.tap)}}
		},
		Claims:   func(i *iface) []string { return []string{"link " + i.host + " in " + i.namespace} },
		Recreate: recreateInterface,
		Create: func(w *descriptor.World, i *iface) ([]descriptor.Op, error) {
			return i.putInterface(w, nil)
		},
		Update: func(w *descriptor.World, have, want *iface) ([]descriptor.Op, error) {
			return want.putInterface(w, have)
		},
		Delete: deleteInterface,
		Dumps: func(_ *descriptor.World, c descriptor.Candidates) (out []descriptor.Request) {
			c.Each(func(_ string, state any, _ bool) {
				i := state.(*iface)
				if out = append(out, linksOf(i.namespace)); (i.peer != "" || i.tap != "") && i.namespace != "" {
					out = append(out, linksOf("")) // where its spare may be, and where VPP makes taps
				}
			})
			return out
		},
		Retrieve: retrieveInterfaces,
	}.Descriptor()
}

func linksOf(namespace string) descriptor.Request {
	return descriptor.Request{ID: "link_list " + namespace, Call: vpp.Call{Dump: true, Msg: &ListLinks{Namespace: namespace}}}
}

func compileInterface(_ string, m *interfaces.Interface) (*iface, error) {
	i := &iface{
		name: m.GetName(), typ: m.GetType(), host: m.GetHostIfName(), enabled: m.GetEnabled(), mtu: m.GetMtu(), linkOnly: m.GetLinkOnly(),
	}
	if i.host == "" {
		i.host = i.name
	}
	if i.typ == interfaces.Interface_LOOPBACK {
		i.host = "lo"
	}
	if p := i.link(""); p.made() && i.mtu == 0 {
		i.mtu = defaultMTU
	}
	switch {
	case i.name == "":
		return nil, errors.New("name: empty")
	case len(i.host) > maxName || strings.ContainsAny(i.host, "/ \t\n:") || i.host == "." || i.host == "..":
		return nil, fmt.Errorf("host_if_name: %q is no name of a link", i.host)
	case m.GetVrfMasterInterface() != "":
		return nil, errors.New("vrf_master_interface: not supported")
	case len(m.GetName())+len(m.GetVeth().GetPeerIfName()) > 200:
		return nil, errors.New("name: does not fit the alias of a link")
	}
	if err := i.compileLink(m); err != nil {
		return nil, err
	}
	if s := m.GetPhysAddress(); s != "" {
		mac, err := net.ParseMAC(s)
		if err != nil || len(mac) != 6 {
			return nil, fmt.Errorf("phys_address: %q is no MAC address", s)
		}
		i.mac = mac.String()
	}
	var err error
	if i.namespace, err = compileNamespace(m.GetNamespace()); err != nil {
		return nil, err
	}
	for n, s := range m.GetIpAddresses() {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("ip_addresses[%d]: %q is no address with prefix length", n, s)
		}
		i.addresses = append(i.addresses, p)
	}
	slices.SortFunc(i.addresses, netip.Prefix.Compare)
	for n := 1; n < len(i.addresses); n++ {
		if i.addresses[n] == i.addresses[n-1] {
			return nil, fmt.Errorf("ip_addresses: %s twice", i.addresses[n])
		}
	}
	return i, nil
}

func (i *iface) compileLink(m *interfaces.Interface) error {
	i.peer, i.tap = m.GetVeth().GetPeerIfName(), m.GetTap().GetVppTapIfName()
	switch i.typ {
	case interfaces.Interface_VETH:
		switch {
		case i.peer == "":
			return errors.New("veth.peer_if_name: empty")
		case i.peer == i.name:
			return errors.New("veth.peer_if_name: the interface itself")
		case m.GetVeth().GetRxChecksumOffloading() != 0:
			return errors.New("veth.rx_checksum_offloading: not supported")
		case m.GetVeth().GetTxChecksumOffloading() == interfaces.VethLink_CHKSM_OFFLOAD_ENABLED:
			return errors.New("veth.tx_checksum_offloading: it is enabled by default, and stays")
		}
		i.wholeChecksums = m.GetVeth().GetTxChecksumOffloading() == interfaces.VethLink_CHKSM_OFFLOAD_DISABLED
	case interfaces.Interface_TAP_TO_VPP:
		if i.tap == "" {
			return errors.New("tap.vpp_tap_if_name: empty")
		}
	case interfaces.Interface_LOOPBACK, interfaces.Interface_EXISTING, interfaces.Interface_DUMMY:
		if m.GetLink() != nil {
			return fmt.Errorf("type: %s has no link", i.typ)
		}
	default:
		return fmt.Errorf("type: %s: not supported", i.typ)
	}
	return nil
}

func (i *iface) interfaceMessage() *interfaces.Interface {
	m := &interfaces.Interface{
		Name: i.name, Type: i.typ, HostIfName: i.host, Enabled: i.enabled, PhysAddress: i.mac, Mtu: i.mtu, LinkOnly: i.linkOnly,
		Namespace: namespaceMessage(i.namespace),
	}
	for _, p := range i.addresses {
		m.IpAddresses = append(m.IpAddresses, p.String())
	}
	switch i.typ {
	case interfaces.Interface_VETH:
		v := &interfaces.VethLink{PeerIfName: i.peer}
		if i.wholeChecksums {
			v.TxChecksumOffloading = interfaces.VethLink_CHKSM_OFFLOAD_DISABLED
		}
		m.Link = &interfaces.Interface_Veth{Veth: v}
	case interfaces.Interface_TAP_TO_VPP:
		m.Link = &interfaces.Interface_Tap{Tap: &interfaces.TapLink{VppTapIfName: i.tap}}
	}
	return m
}

// recreateInterface reports changes to another kind of link, and changes to down, after which the kernel forgets the link's routes.
func recreateInterface(have, want *iface) bool {
	return have.typ != want.typ || have.namespace != want.namespace || have.host != want.host || have.peer != want.peer || have.tap != want.tap ||
		have.enabled && !want.enabled
}

func (i *iface) kind() string {
	switch i.typ {
	case interfaces.Interface_VETH:
		return kindVeth
	case interfaces.Interface_DUMMY:
		return kindDummy
	case interfaces.Interface_TAP_TO_VPP:
		return kindTap
	}
	return kindExisting
}

func (i *iface) link(from string) PutLink {
	return PutLink{
		Namespace: i.namespace, Name: i.host, Kind: i.kind(), Logical: i.name, Peer: i.peer, From: from, MAC: i.mac, MTU: i.mtu, Up: i.enabled,
		WholeChecksums: i.wholeChecksums,
	}
}

// putInterface makes the interface as wanted; have is nil if it does not exist.
func (i *iface) putInterface(w *descriptor.World, have *iface) ([]descriptor.Op, error) {
	if i.peer != "" {
		if p, ok := w.Wanted(kv.LinuxInterfaceKey(i.peer)).(*iface); ok && p.peer != i.name {
			return nil, fmt.Errorf("veth.peer_if_name: %s has %q for its peer", i.peer, p.peer)
		}
	}
	var from string
	if i.tap != "" {
		var ok bool
		if from, ok = ifaces.TapHost(w, i.tap); !ok {
			return nil, fmt.Errorf("tap.vpp_tap_if_name: %q is no tap of VPP's with a host_if_name", i.tap)
		}
	}
	m := i.link(from)
	ops := []descriptor.Op{{Call: vpp.Call{Msg: &m}, Then: func(vpp.Reply) []descriptor.Op {
		hostLinksOf(w)[i.name] = hostLink{i.namespace, i.host, from}
		return nil
	}}}
	if i.linkOnly {
		return ops, nil
	}
	var was []netip.Prefix
	if have != nil {
		was = have.addresses
	}
	ops = append(ops, i.assign(i.addresses, was, true)...)
	if gone := i.assign(was, i.addresses, false); len(gone) > 0 {
		// When the kernel removes an address, it also removes later addresses of the same subnet.
		ops = append(append(ops, gone...), i.assign(i.addresses, nil, true)...)
	}
	return ops, nil
}

// assign adds or removes the addresses of list that other lacks.
func (i *iface) assign(list, other []netip.Prefix, add bool) (ops []descriptor.Op) {
	for _, p := range list {
		if !slices.Contains(other, p) {
			ops = append(ops, descriptor.Op{Call: vpp.Call{Msg: &PutAddress{Add: add, Namespace: i.namespace, Link: i.host, Address: p.String()}}})
		}
	}
	return ops
}

func deleteInterface(w *descriptor.World, i *iface) (ops []descriptor.Op, _ error) {
	if !i.linkOnly {
		ops = i.assign(i.addresses, nil, false)
	}
	known, _ := hostLinksOf(w)[i.name]
	return append(ops, descriptor.Op{Call: vpp.Call{Msg: &DropLink{i.link(known.from)}}, Then: func(vpp.Reply) []descriptor.Op {
		delete(hostLinksOf(w), i.name)
		return nil
	}}), nil
}

// retrieveInterfaces looks up the candidates. Of a foreign link, only the addresses that values name count.
func retrieveInterfaces(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, err error) {
	named := map[string][]netip.Prefix{} // addresses of all candidates, by key
	c.Each(func(key string, state any, _ bool) { named[key] = append(named[key], state.(*iface).addresses...) })
	c.Each(func(key string, state any, wanted bool) {
		i := *state.(*iface)
		if !wanted && c.Wanted(key) != nil && found(out, key) {
			return
		}
		links, failed := descriptor.Details[*Link](d, linksOf(i.namespace).ID)
		if failed != nil {
			err = failed
			return
		}
		n := slices.IndexFunc(links, func(l *Link) bool { return l.Name == i.host })
		if n < 0 || i.peer != "" && i.host == spare(i.name) {
			half, failed := i.unfinished(d)
			if err = errors.Join(err, failed); half != nil {
				out = append(out, descriptor.Found{Key: key, State: half})
			}
			return
		}
		l, p := links[n], i.link("")
		if p.made() && (l.Alias != p.alias() || l.Kind != i.kind()) {
			return
		}
		if i.tap != "" {
			if is, failed := i.atPlace(w, d, l); failed != nil || !is {
				delete(hostLinksOf(w), i.name) // nor are the routes there those of the present VPP's tap
				err = errors.Join(err, failed)
				return
			}
		}
		got := i
		got.enabled, got.mac, got.mtu, got.addresses = l.Up, l.MAC, l.MTU, nil
		got.wholeChecksums = l.WholeChecksums && i.peer != ""
		from, _ := ifaces.TapHost(w, i.tap)
		for _, a := range l.Addresses {
			if p.made() || slices.Contains(named[key], a) {
				got.addresses = append(got.addresses, a)
			}
		}
		hostLinksOf(w)[i.name] = hostLink{i.namespace, i.host, from}
		out = append(out, descriptor.Found{Key: key, State: &got})
	})
	return out, err
}

// unfinished returns the end of a pair of which both ends are spares: an agent ended while it made the pair, perhaps before it had marked it. Nothing
// needs such a pair: an end that is wanted is made anew.
func (i iface) unfinished(d *descriptor.Dump) (*iface, error) {
	if i.peer == "" {
		return nil, nil
	}
	links, err := descriptor.Details[*Link](d, linksOf("").ID)
	has := func(logical, peer string) bool {
		return slices.ContainsFunc(links, func(l *Link) bool {
			return l.Kind == kindVeth && l.Name == spare(logical) && (l.Alias == "" || l.Alias == alias(logical, peer))
		})
	}
	if err != nil || !has(i.name, i.peer) || !has(i.peer, i.name) {
		return nil, err
	}
	i.namespace, i.host, i.addresses = "", spare(i.name), nil
	return &i, nil
}

func found(list []descriptor.Found, key string) bool {
	return slices.ContainsFunc(list, func(f descriptor.Found) bool { return f.Key == key })
}
