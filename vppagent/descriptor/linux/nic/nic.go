// Package nic turns the addresses and routes of a NIC into those of another link, and back: the kernel's end of a link to VPP, which then has the NIC.
//
// Invariant: each step can be repeated. A process that ends between two steps leaves addresses and routes on one of both links, or on both, and Take or
// Release completes the move. Exactly one of the links is deaf at the end.
package nic

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/ethtool"
)

// NIC is a NIC and the link that stands for it, both in the network namespace of the process.
type NIC struct {
	Name string
	Link string // the kernel's end of the link to VPP, with the same MAC address
}

// record is what the NIC had before it was given away.
type record struct {
	NIC       string    `json:"nic"`
	Addresses []address `json:"addresses"`
	Routes    []route   `json:"routes"`
	Settings  settings  `json:"settings"`
	GRO       uint32    `json:"gro"`
	// Promiscuous: the NIC passes frames for any MAC address.
	Promiscuous bool `json:"promiscuous,omitempty"`
}

type address struct {
	Prefix    netip.Prefix `json:"prefix"`
	Broadcast net.IP       `json:"broadcast,omitempty"`
	Flags     int          `json:"flags,omitempty"`
	Scope     int          `json:"scope,omitempty"`
	Valid     int          `json:"valid,omitempty"` // seconds; 0: for ever
	Preferred int          `json:"preferred,omitempty"`
}

type route struct {
	Dst      string `json:"dst"`
	Gateway  net.IP `json:"gateway,omitempty"`
	Source   net.IP `json:"source,omitempty"`
	Family   int    `json:"family"`
	Metric   int    `json:"metric,omitempty"`
	Protocol int    `json:"protocol"`
	Scope    int    `json:"scope,omitempty"`
	Flags    int    `json:"flags,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
}

// Look returns what the NIC has, for Take and Release. It refuses a NIC whose routes it could not move.
func (n *NIC) Look() ([]byte, error) {
	l, err := netlink.LinkByName(n.Name)
	if err != nil {
		return nil, fmt.Errorf("NIC %s: %w", n.Name, err)
	}
	r := record{NIC: n.Name, Promiscuous: l.Attrs().RawFlags&unix.IFF_PROMISC != 0}
	if r.Addresses, err = addressesOf(l); err == nil && len(r.Addresses) == 0 {
		err = errors.New("it has no address")
	}
	if err == nil {
		r.Routes, err = routesOf(l)
	}
	if err == nil {
		r.Settings, err = readSettings(n.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("NIC %s: %w", n.Name, err)
	}
	r.GRO, _ = ethtool.Here(n.Name, unix.ETHTOOL_GGRO, 0) // a link without offloads
	return json.Marshal(r)
}

func addressesOf(l netlink.Link) (out []address, err error) {
	all, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); !ok || ip.Is6() && ip.IsLinkLocalUnicast() {
			continue // the kernel makes it
		}
		ones, _ := a.Mask.Size()
		out = append(out, address{netip.PrefixFrom(ip, ones), a.Broadcast, a.Flags &^ unix.IFA_F_PERMANENT, a.Scope, finite(a.ValidLft), finite(a.PreferedLft)})
	}
	return out, nil
}

// finite returns 0 for the kernel's value of for ever.
func finite(seconds int) int {
	if int64(seconds) == math.MaxUint32 {
		return 0
	}
	return seconds
}

// routesOf returns the routes by a link that do not follow from its addresses.
func routesOf(l netlink.Link) (out []route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, k := range all {
			for _, hop := range k.MultiPath {
				if hop.LinkIndex == l.Attrs().Index {
					return nil, fmt.Errorf("the route to %v has several next hops: it cannot be moved", k.Dst)
				}
			}
			switch {
			case k.LinkIndex != l.Attrs().Index || k.Table == unix.RT_TABLE_LOCAL || k.Protocol == unix.RTPROT_KERNEL:
			case k.Table != unix.RT_TABLE_MAIN || k.Encap != nil || k.Via != nil || k.Type != unix.RTN_UNICAST:
				return nil, fmt.Errorf("the route to %v in table %d cannot be moved", k.Dst, k.Table)
			default:
				r := route{Dst: k.Dst.String(), Gateway: k.Gw, Source: k.Src, Family: family, Metric: k.Priority, Protocol: int(k.Protocol), Scope: int(k.Scope), Flags: k.Flags & unix.RTNH_F_ONLINK, MTU: k.MTU}
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// Take moves what the NIC had to the link, and makes the NIC deaf.
func (n *NIC) Take(text []byte) error {
	r, err := read(text)
	if err != nil {
		return err
	}
	_, _ = ethtool.Here(n.Name, unix.ETHTOOL_SGRO, 0) // VPP drops frames larger than the MTU; a link without offloads has none
	return linux.Wrap("give "+n.Name+" to VPP", errors.Join(setPromiscuous(n.Name, true), r.move(n.Name, n.Link)))
}

// Release moves it back, and makes the link deaf, if it exists.
func (n *NIC) Release(text []byte) error {
	r, err := read(text)
	if err != nil {
		return err
	}
	err = errors.Join(r.move(n.Link, r.NIC), setPromiscuous(r.NIC, r.Promiscuous))
	_, _ = ethtool.Here(r.NIC, unix.ETHTOOL_SGRO, r.GRO) // as before
	return linux.Wrap("take "+r.NIC+" back from VPP", err)
}

// setPromiscuous lets a NIC pass frames for any MAC address, or for its own alone. VPP's port behind the NIC has a separate address, and af_packet of VPP does not
// ask the kernel for its frames.
func setPromiscuous(name string, on bool) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if on {
		err = netlink.SetPromiscOn(l)
	} else {
		err = netlink.SetPromiscOff(l)
	}
	if err != nil {
		return fmt.Errorf("frames of %s for other MAC addresses: %w", name, err)
	}
	return nil
}

// Holds reports that the link has addresses, as those that the NIC had. Without a record of the NIC, any addresses count.
func (n *NIC) Holds(text []byte) bool {
	if len(text) > 0 {
		if r, err := read(text); err != nil || len(r.Addresses) == 0 {
			return false
		}
	}
	l, err := netlink.LinkByName(n.Link)
	if err != nil {
		return false
	}
	have, err := addressesOf(l)
	return err == nil && len(have) > 0
}

// Made reports that the link exists.
func (n *NIC) Made() bool {
	_, err := netlink.LinkByName(n.Link)
	return err == nil
}

// Up reports that the NIC is up: that of a record, if there is one.
func (n *NIC) Up(text []byte) bool {
	name := n.Name
	if r, err := read(text); err == nil && len(text) > 0 {
		name = r.NIC
	}
	l, err := netlink.LinkByName(name)
	return err != nil || l.Attrs().Flags&net.FlagUp != 0
}

// Deafen makes the link deaf: VPP passes it the NIC's frames before the kernel may listen to them.
func (n *NIC) Deafen() error {
	return deaf.write(n.Link)
}

func read(text []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("record of a NIC: %w", err)
	}
	return r, nil
}

// move gives everything to one link and takes it from another. Both have it in between, so that packets always find a route.
func (r *record) move(from, to string) error {
	target, err := netlink.LinkByName(to)
	if err != nil {
		return fmt.Errorf("link %s: %w", to, err)
	}
	if err := r.Settings.write(to); err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(target), r.putAddresses(target), r.putRoutes(target)); err != nil {
		return err
	}
	source, err := netlink.LinkByName(from)
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		return nil
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", from, err)
	}
	if err := r.dropAddresses(source); err != nil {
		return err
	}
	// The kernel removed routes whose source were these addresses.
	return errors.Join(r.putRoutes(target), deaf.write(from))
}

func (r *record) putAddresses(l netlink.Link) error {
	for _, a := range r.Addresses {
		flags, broadcast := a.Flags, a.Broadcast.To4()
		if a.Prefix.Addr().Is6() {
			flags |= unix.IFA_F_NODAD // it was unique on the same link a moment ago
		} else if broadcast == nil {
			broadcast = net.IPv4zero // else netlink computes one
		}
		n := &netlink.Addr{IPNet: toNet(a.Prefix), Flags: flags, Scope: a.Scope, Broadcast: broadcast, ValidLft: a.Valid, PreferedLft: a.Preferred}
		if err := netlink.AddrReplace(l, n); err != nil {
			return fmt.Errorf("give %s to %s: %w", a.Prefix, l.Attrs().Name, err)
		}
	}
	return nil
}

func (r *record) dropAddresses(l netlink.Link) error {
	for _, a := range r.Addresses {
		if err := netlink.AddrDel(l, &netlink.Addr{IPNet: toNet(a.Prefix)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("take %s from %s: %w", a.Prefix, l.Attrs().Name, err)
		}
	}
	return nil
}

// putRoutes puts routes without a gateway first: the others need them.
func (r *record) putRoutes(l netlink.Link) error {
	for _, gateways := range []bool{false, true} {
		for _, k := range r.Routes {
			if (k.Gateway != nil) != gateways {
				continue
			}
			_, dst, err := net.ParseCIDR(k.Dst)
			if err != nil {
				return err
			}
			n := &netlink.Route{
				Dst: dst, LinkIndex: l.Attrs().Index, Gw: k.Gateway, Src: k.Source, Family: k.Family, Priority: k.Metric, Protocol: netlink.RouteProtocol(k.Protocol),
				Scope: netlink.Scope(k.Scope), Flags: k.Flags, MTU: k.MTU, Table: unix.RT_TABLE_MAIN,
			}
			if err := netlink.RouteReplace(n); err != nil {
				return fmt.Errorf("route to %q by %s: %w", k.Dst, l.Attrs().Name, err)
			}
		}
	}
	return nil
}

func toNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// settings decide whether the kernel listens to a link. It must not listen to frames that reach it by another link, too: it would take each packet
// twice. A link whose source addresses are reached by another link is deaf with rp_filter 1 (RFC 3704), and answers no ARP with arp_ignore 8.
type settings struct {
	RPFilter  string `json:"rpFilter"`
	ARPIgnore string `json:"arpIgnore"`
	NoIPv6    string `json:"noIPv6"`
}

// deaf are the settings of the link that does not listen.
var deaf = settings{RPFilter: "1", ARPIgnore: "8", NoIPv6: "1"}

// setting is a file with its value.
type setting struct {
	file  string
	value *string
}

func (s *settings) files(link string) []setting {
	return []setting{
		{"ipv4/conf/" + link + "/rp_filter", &s.RPFilter}, {"ipv4/conf/" + link + "/arp_ignore", &s.ARPIgnore}, {"ipv6/conf/" + link + "/disable_ipv6", &s.NoIPv6},
	}
}
