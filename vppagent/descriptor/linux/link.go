package linux

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	"golang.org/x/sys/unix"
)

// The kinds of links.
const (
	kindVeth     = "veth"
	kindDummy    = "dummy"
	kindTap      = "tap"
	kindExisting = "existing"
)

// ListLinks asks for the links of a namespace and their addresses. A namespace there is not has none.
type ListLinks struct {
	Message
	Namespace string `binapi:"string,name=namespace"`
}

// GetMessageName is "link_list".
func (*ListLinks) GetMessageName() string { return "link_list" }

// Link is a link in the kernel.
type Link struct {
	Message
	Name, Alias, Kind string
	MAC               string // in the form of net.HardwareAddr
	MTU               uint32
	Up                bool
	WholeChecksums    bool           // of a veth of ours: the kernel computes checksums before it passes packets on
	Addresses         []netip.Prefix // sorted, without IPv6 addresses of scope link, which the kernel makes
}

// GetMessageName is "link".
func (*Link) GetMessageName() string { return "link" }

func (r *ListLinks) do(h *handles) ([]api.Message, error) {
	nl, err := h.handleOf(r.Namespace)
	if none(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	links, err := nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addrs, err := nl.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := make([]api.Message, 0, len(links))
	for _, l := range links {
		a := l.Attrs()
		m := &Link{Name: a.Name, Alias: a.Alias, Kind: l.Type(), MAC: a.HardwareAddr.String(), MTU: uint32(a.MTU), Up: a.Flags&net.FlagUp != 0}
		for _, addr := range addrs {
			if p, ok := fromNet(addr.IPNet); ok && addr.LinkIndex == a.Index && (p.Addr().Is4() || !p.Addr().IsLinkLocalUnicast()) {
				m.Addresses = append(m.Addresses, p)
			}
		}
		slices.SortFunc(m.Addresses, netip.Prefix.Compare)
		if m.Kind == kindVeth && strings.HasPrefix(a.Alias, AliasPrefix) {
			if m.WholeChecksums, err = nl.wholeChecksums(a.Name); err != nil {
				return nil, err
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func fromNet(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

func toNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// PutLink makes a link and sets its attributes; attributes that it already has stay. A link with this name, of a kind that we
// make and without our alias, is foreign: an error.
type PutLink struct {
	Message
	Namespace string `binapi:"string,name=namespace"`
	Name      string `binapi:"string,name=name"`
	Kind      string `binapi:"string,name=kind"`
	Logical   string `binapi:"string,name=logical"`
	Peer      string `binapi:"string,name=peer"` // of a veth: logical name of the other end
	From      string `binapi:"string,name=from"` // of a tap: VPP's name for it on the host
	MAC       string `binapi:"string,name=mac"`  // "": as it is
	MTU       uint32 `binapi:"u32,name=mtu"`     // 0: as it is
	Up        bool   `binapi:"bool,name=up"`
	// WholeChecksums: of a veth, see Link.
	WholeChecksums bool `binapi:"bool,name=whole_checksums"`
}

// GetMessageName is "link_put".
func (*PutLink) GetMessageName() string { return "link_put" }

const (
	AliasPrefix = "contiv-agent " // begins our marks
	SparePrefix = "ca-"           // begins names of spares
)

// alias is our mark on a link: the logical name of its end and, for a veth, of the other end.
func alias(logical, peer string) string {
	if peer != "" {
		return AliasPrefix + logical + " peer " + peer
	}
	return AliasPrefix + logical
}

// spare is the name of an unwanted end of a veth whose peer is wanted. The spare is in the agent's namespace.
func spare(logical string) string {
	sum := sha256.Sum256([]byte(logical))
	return fmt.Sprintf(SparePrefix+"%x", sum[:6])
}

func (r *PutLink) alias() string { return alias(r.Logical, r.Peer) }

func (r *PutLink) made() bool { return r.Kind == kindVeth || r.Kind == kindDummy }

func (r *PutLink) do(h *handles) ([]api.Message, error) {
	nl, err := h.handleOf(r.Namespace)
	if err == nil && r.Kind == kindTap {
		err = r.clearTap(h, nl)
	}
	if err != nil {
		return nil, err
	}
	l, err := nl.LinkByName(r.Name)
	switch {
	case none(err):
		if l, err = r.make(h, nl); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("link %s: %w", r.Name, err)
	case r.made() && l.Attrs().Alias != r.alias():
		return nil, fmt.Errorf("there is a link %s that is not ours", r.Name)
	}
	return nil, r.adjust(nl, l)
}

// make finds or makes the link, under its name in its namespace.
func (r *PutLink) make(h *handles, nl *handle) (netlink.Link, error) {
	switch r.Kind {
	case kindDummy:
		attrs := netlink.NewLinkAttrs()
		attrs.Name = r.Name
		if err := nl.LinkAdd(&netlink.Dummy{LinkAttrs: attrs}); err != nil {
			return nil, fmt.Errorf("make %s: %w", r.Name, err)
		}
		return r.claim(nl, r.Name)
	case kindVeth:
		if err := r.pair(h, nl); err != nil {
			return nil, err
		}
		return r.fetch(h, nl, spare(r.Logical))
	case kindTap:
		return r.fetch(h, nl, r.From)
	}
	return nil, fmt.Errorf("there is no link %s", r.Name)
}

// pair makes both ends of a veth as spares, unless our end is a spare already.
func (r *PutLink) pair(h *handles, nl *handle) error {
	own, err := h.handleOf("")
	if err != nil {
		return err
	}
	if _, err := nl.LinkByName(spare(r.Logical)); err == nil { // moved, and not renamed yet
		return nil
	}
	if l, err := own.LinkByName(spare(r.Logical)); err == nil {
		if a := l.Attrs().Alias; a == "" || a == r.alias() {
			return nil
		}
		if _, err := own.LinkByName(spare(peerOf(l.Attrs().Alias))); err != nil {
			return fmt.Errorf("it is still the other end of %s", peerOf(l.Attrs().Alias))
		}
		if err := own.LinkDel(l); err != nil { // both ends were spares
			return fmt.Errorf("remove an old pair: %w", err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = spare(r.Logical)
	if err := own.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: spare(r.Peer)}); err != nil {
		return fmt.Errorf("make a pair for %s and %s: %w", r.Logical, r.Peer, err)
	}
	for _, end := range [][2]string{{r.Logical, r.Peer}, {r.Peer, r.Logical}} {
		l, err := own.LinkByName(spare(end[0]))
		if err == nil {
			err = own.LinkSetAlias(l, alias(end[0], end[1]))
		}
		if err != nil {
			return fmt.Errorf("mark the end of %s: %w", end[0], err)
		}
	}
	return nil
}

// peerOf returns the other end that an alias names.
func peerOf(alias string) string {
	_, peer, _ := strings.Cut(alias, " peer ")
	return peer
}

// fetch moves a link from the agent's namespace to its wanted namespace and gives it its name.
func (r *PutLink) fetch(h *handles, nl *handle, from string) (netlink.Link, error) {
	own, err := h.handleOf("")
	if err != nil {
		return nil, err
	}
	if l, err := own.LinkByName(from); err == nil && r.Namespace != "" {
		if err := own.LinkSetNsFd(l, int(nl.ns)); err != nil {
			return nil, fmt.Errorf("move %s into its namespace: %w", from, err)
		}
	}
	return r.claim(nl, from)
}

// claim puts our mark on the link called from, and renames it. The kernel renames only links that are down.
func (r *PutLink) claim(nl *handle, from string) (netlink.Link, error) {
	l, err := nl.LinkByName(from)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", from, err)
	}
	if r.made() {
		err = nl.LinkSetAlias(l, r.alias())
	}
	if err == nil && from != r.Name {
		err = errors.Join(nl.LinkSetDown(l), nl.LinkSetName(l, r.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("name %s: %w", r.Name, err)
	}
	return nl.LinkByName(r.Name)
}

// adjust sets the attributes that differ.
func (r *PutLink) adjust(nl *handle, l netlink.Link) error {
	a := l.Attrs()
	var errs []error
	if r.MAC != "" && a.HardwareAddr.String() != r.MAC {
		mac, err := net.ParseMAC(r.MAC)
		if err == nil {
			err = nl.LinkSetHardwareAddr(l, mac)
		}
		errs = append(errs, Wrap("set the MAC address of "+r.Name, err))
	}
	if r.MTU != 0 && uint32(a.MTU) != r.MTU {
		errs = append(errs, Wrap("set the MTU of "+r.Name, nl.LinkSetMTU(l, int(r.MTU))))
	}
	if r.Kind == kindVeth {
		have, err := nl.wholeChecksums(r.Name)
		if err == nil && have != r.WholeChecksums {
			err = nl.setWholeChecksums(r.Name, r.WholeChecksums)
		}
		errs = append(errs, err)
	}
	if up := a.Flags&net.FlagUp != 0; r.Up && !up {
		errs = append(errs, Wrap("set up "+r.Name, nl.LinkSetUp(l)))
	} else if !r.Up && up {
		errs = append(errs, Wrap("set down "+r.Name, nl.LinkSetDown(l)))
	}
	return errors.Join(errs...)
}

// Wrap says what failed; nil stays nil.
func Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// DropLink undoes PutLink: it deletes a link that PutLink made, and moves back a link that PutLink fetched. An end of a veth whose peer is
// wanted becomes a spare.
type DropLink struct {
	PutLink
}

// GetMessageName is "link_drop".
func (*DropLink) GetMessageName() string { return "link_drop" }

func (r *DropLink) do(h *handles) ([]api.Message, error) {
	nl, err := h.handleOf(r.Namespace)
	if none(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l, err := nl.LinkByName(r.Name)
	if none(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", r.Name, err)
	}
	switch {
	case r.Kind == kindVeth && r.Name == spare(r.Logical) && l.Attrs().Alias == "":
		return nil, Wrap("remove "+r.Name, nl.LinkDel(l)) // see iface.unfinished
	case r.made() && l.Attrs().Alias != r.alias(), r.Kind == kindExisting, r.Kind == kindTap && (r.From == "" || l.Type() != typeTap):
		return nil, nil
	case r.Kind == kindDummy:
		return nil, Wrap("remove "+r.Name, nl.LinkDel(l))
	case r.Kind == kindTap:
		if fresh, err := r.freshTap(h); err != nil || fresh {
			return nil, errors.Join(err, r.clearTap(h, nl))
		}
		return nil, r.giveBack(h, nl, l, r.From)
	}
	own, err := h.handleOf("")
	if err != nil {
		return nil, err
	}
	if o, err := own.LinkByName(spare(r.Peer)); err == nil && (o.Attrs().Alias == "" || o.Attrs().Alias == alias(r.Peer, r.Logical)) {
		return nil, Wrap("remove "+r.Name, nl.LinkDel(l))
	}
	return nil, r.giveBack(h, nl, l, spare(r.Logical))
}

// giveBack moves a link back to the agent's namespace, under its former name.
func (r *DropLink) giveBack(h *handles, nl *handle, l netlink.Link, name string) error {
	own, err := h.handleOf("")
	if err != nil {
		return err
	}
	err = errors.Join(nl.LinkSetDown(l), nl.LinkSetName(l, name))
	if err == nil && r.Namespace != "" {
		err = nl.LinkSetNsFd(l, int(own.ns))
	}
	return Wrap("give back "+r.Name, err)
}

// PutAddress adds or removes an address of a link; the addition of a present and the removal of an absent address succeed.
type PutAddress struct {
	Message
	Add       bool   `binapi:"bool,name=is_add"`
	Namespace string `binapi:"string,name=namespace"`
	Link      string `binapi:"string,name=link"`
	Address   string `binapi:"string,name=address"` // with prefix length
}

// GetMessageName is "address_put".
func (*PutAddress) GetMessageName() string { return "address_put" }

func (r *PutAddress) do(h *handles) ([]api.Message, error) {
	nl, l, err := h.link(r.Namespace, r.Link)
	if err != nil {
		if none(err) && !r.Add {
			err = nil
		}
		return nil, err
	}
	p, err := netip.ParsePrefix(r.Address)
	if err != nil {
		return nil, err
	}
	a := &netlink.Addr{IPNet: toNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // no other host has it: usable at once
	}
	if r.Add {
		if err = nl.AddrAdd(l, a); errors.Is(err, unix.EEXIST) {
			err = nil
		}
		return nil, Wrap("add "+r.Address, err)
	}
	if err = nl.AddrDel(l, a); errors.Is(err, unix.EADDRNOTAVAIL) {
		err = nil
	}
	return nil, Wrap("remove "+r.Address, err)
}

// link finds a link in a namespace; none reports that the link or the namespace does not exist.
func (h *handles) link(namespace, name string) (*handle, netlink.Link, error) {
	nl, err := h.handleOf(namespace)
	if err != nil {
		return nil, nil, err
	}
	l, err := nl.LinkByName(name)
	if err != nil {
		return nil, nil, fmt.Errorf("link %s: %w", name, err)
	}
	return nl, l, nil
}
