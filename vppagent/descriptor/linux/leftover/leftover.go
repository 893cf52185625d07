// Package leftover turns the marks that agents leave in the kernel into a list of objects to remove. It needs neither VPP nor a journal.
//
// Invariant: an object without an agent's mark (alias, protocol 202, fingerprint of a table) is not in the list. Removal of an absent object succeeds.
package leftover

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

// Object is an object in the kernel that an agent made.
type Object struct {
	name   string // "link contiv-host"
	remove func() error
}

// String returns the kind and the name, as "link contiv-host".
func (o Object) String() string { return o.name }

// Remove removes the object.
func (o Object) Remove() error { return linux.Wrap(o.name, o.remove()) }

// Kernel is the kernel's network in one namespace. The caller closes it.
type Kernel struct {
	ns     netns.NsHandle
	links  *netlink.Handle
	filter *nftables.Conn
}

// Open opens a namespace by the path of its file; "": the process's.
func Open(path string) (*Kernel, error) {
	if path == "" {
		path = "/proc/self/ns/net"
	}
	k := &Kernel{}
	var err error
	if k.ns, err = netns.GetFromPath(path); err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	if k.links, err = netlink.NewHandleAt(k.ns, unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("network namespace %s: %w", path, err), k.ns.Close())
	}
	if k.filter, err = nftables.New(nftables.WithNetNSFd(int(k.ns))); err != nil {
		k.Close()
		return nil, fmt.Errorf("packet filter: %w", err)
	}
	return k, nil
}

// Close closes the namespace.
func (k *Kernel) Close() {
	k.links.Close()
	_ = k.ns.Close() // nothing was written to it
}

// Objects returns what agents made, in the order of removal: links, so that no packet of a pod reaches the kernel when the rules against that are gone;
// routes by links of other owners; tables. The kernel removes the addresses, routes and neighbours of a link with it. The error names the kinds
// that could not be listed; the other kinds are in the list.
func (k *Kernel) Objects() (out []Object, err error) {
	for _, list := range []func() ([]Object, error){k.ownLinks, k.ownRoutes, k.ownTables} {
		some, failed := list()
		out, err = append(out, some...), errors.Join(err, failed)
	}
	return out, err
}

func (k *Kernel) ownLinks() (out []Object, _ error) {
	all, err := k.links.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range all {
		if !strings.HasPrefix(l.Attrs().Alias, linux.AliasPrefix) && !unmarkedPair(l, all) {
			continue
		}
		out = append(out, Object{"link " + l.Attrs().Name, func() error {
			now, err := k.links.LinkByIndex(l.Attrs().Index)
			if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
				return nil // it was the other end of a veth
			}
			if err == nil && now.Attrs().Name == l.Attrs().Name {
				err = k.links.LinkDel(now)
			}
			if errors.Is(err, unix.ENODEV) {
				err = nil
			}
			return err
		}})
	}
	slices.SortFunc(out, func(a, b Object) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// unmarkedPair reports that an agent was killed between the two requests that make a pair and mark it: both ends are spares, and this one has no alias.
func unmarkedPair(l netlink.Link, all []netlink.Link) bool {
	a := l.Attrs()
	return l.Type() == "veth" && a.Alias == "" && isSpare(a.Name) && slices.ContainsFunc(all, func(other netlink.Link) bool {
		o := other.Attrs()
		return o.Index == a.ParentIndex && o.ParentIndex == a.Index && isSpare(o.Name)
	})
}

// isSpare reports that a link has the name of an end of a veth that an agent has made and not named yet.
func isSpare(name string) bool {
	digits, is := strings.CutPrefix(name, linux.SparePrefix)
	return is && len(digits) == 12
}

// ownRoutes returns our routes by links that are not ours.
func (k *Kernel) ownRoutes() (out []Object, _ error) {
	filter := &netlink.Route{Protocol: linux.RouteProtocol, Table: unix.RT_TABLE_UNSPEC}
	routes, err := k.links.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		by := ""
		if l, err := k.links.LinkByIndex(r.LinkIndex); err == nil {
			if strings.HasPrefix(l.Attrs().Alias, linux.AliasPrefix) {
				continue
			}
			by = " by " + l.Attrs().Name
		}
		out = append(out, Object{fmt.Sprintf("route to %s%s", r.Dst, by), func() error {
			err := k.links.RouteDel(&r)
			if errors.Is(err, unix.ESRCH) {
				err = nil
			}
			return err
		}})
	}
	return out, nil
}

// ownTable is a table that agents make. A table with this name is theirs if it has a chain whose name begins with the sign.
type ownTable struct {
	nftables.Table
	sign string
}

func ownTables() []ownTable {
	return []ownTable{
		{nftables.Table{Name: linux.Table, Family: nftables.TableFamilyINet}, linux.MarkPrefix},
		{nftables.Table{Name: linux.Table, Family: nftables.TableFamilyARP}, linux.MarkPrefix},
		{nftables.Table{Name: linux.PortTable, Family: nftables.TableFamilyINet}, "arriving"},
		{nftables.Table{Name: nodeports.Table, Family: nftables.TableFamilyINet}, linux.MarkPrefix},
	}
}

func (k *Kernel) ownTables() (out []Object, _ error) {
	for _, t := range ownTables() {
		chains, err := k.filter.ListChainsOfTableFamily(t.Family)
		if err != nil {
			return out, fmt.Errorf("list the chains of the packet filter: %w", err)
		}
		own := slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return c.Table.Name == t.Name && strings.HasPrefix(c.Name, t.sign) })
		if !own {
			continue
		}
		family := map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet", nftables.TableFamilyARP: "arp"}[t.Family]
		out = append(out, Object{"table " + family + " " + t.Name, func() error {
			k.filter.DelTable(k.filter.AddTable(&t.Table)) // an addition of an existing table changes nothing
			return k.filter.Flush()
		}})
	}
	return out, nil
}
