package linux_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/leftover"
)

// foreign puts objects of other owners into a namespace: links with our names, routes, and tables beside ours.
func (n *netNS) foreign(t *testing.T, tables ...nftables.Table) {
	t.Helper()
	link := func(l netlink.Link) {
		if err := n.nl.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
	}
	attrs := func(name string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name = name
		return a
	}
	link(&netlink.Veth{LinkAttrs: attrs("eth0"), PeerName: "far"})
	link(&netlink.Veth{LinkAttrs: attrs("cv-theirs"), PeerName: "theirs"})
	link(&netlink.Veth{LinkAttrs: attrs("ca-0123456789ab"), PeerName: "other"})
	eth0, err := n.nl.LinkByName("eth0")
	if err == nil {
		err = n.nl.LinkSetUp(eth0)
	}
	if far, failed := n.nl.LinkByName("far"); failed == nil && err == nil {
		err = n.nl.LinkSetUp(far)
	}
	if err == nil {
		err = n.nl.LinkSetAlias(eth0, "contiv's uplink")
	}
	address, _ := netlink.ParseAddr("192.168.16.1/24") // the text is right
	if err == nil {
		err = n.nl.AddrAdd(eth0, address)
	}
	to, _ := netlink.ParseIPNet("10.200.0.0/16") // the text is right
	if err == nil {
		err = n.nl.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: to, Protocol: 4})
	}
	if err != nil {
		t.Fatal(err)
	}
	at, err := netns.GetFromPath(n.path)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(at)))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		c.AddChain(&nftables.Chain{Name: "theirs", Table: c.AddTable(&table)})
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

// removeLeftovers removes all, and returns the names.
func removeLeftovers(t *testing.T, path string) (names []string) {
	t.Helper()
	k, err := leftover.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	all, err := k.Objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		names = append(names, o.String())
		if err := o.Remove(); err != nil {
			t.Error(err)
		}
	}
	return names
}

// TestLeftover: without journal and VPP, everything of an agent is removed by its marks, also a pair that it had not marked yet, and nothing else is.
func TestLeftover(t *testing.T) {
	l := newLab(t)
	l.own.foreign(t, nftables.Table{Family: nftables.TableFamilyIPv4, Name: "contiv"}, nftables.Table{Family: nftables.TableFamilyINet, Name: "contiv-other"}, nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nat"})
	before, podBefore := l.own.text(t), l.pod.text(t)
	host := veth("contiv-host", "cv-host", nil, func(m *interfaces.Interface) { m.IpAddresses = []string{"10.1.1.1/32", "2001:db8:1::1/128"} })
	c := l.put(
		host, veth("cv-host", "contiv-host", nil, nil),
		veth("cv-0123", "pod", nil, nil), veth("pod", "cv-0123", l.pod.ref(), func(m *interfaces.Interface) { m.IpAddresses = []string{"10.1.1.2/32"} }),
		veth("half", "none", nil, nil),
		&l3.Route{OutgoingInterface: "contiv-host", DstNetwork: "169.254.1.1/32", Scope: l3.Route_LINK},
		&l3.Route{OutgoingInterface: "contiv-host", DstNetwork: "10.96.0.0/12", GwAddr: "169.254.1.1"},
		&interfaces.Interface{Name: "uplink", Type: interfaces.Interface_EXISTING, HostIfName: "eth0", Enabled: true, LinkOnly: true},
		&l3.Route{OutgoingInterface: "uplink", DstNetwork: "10.3.0.0/16", GwAddr: "192.168.16.9"},
		&l3.Route{OutgoingInterface: "uplink", DstNetwork: "10.4.0.0/16", Scope: l3.Route_LINK},
		&contivlinux.Handover{Interface: "contiv-host", VppLinks: []string{"cv-"}, Masquerade: []string{"10.1.1.0/24"}},
		&contivlinux.HostPort{HostAddress: "0.0.0.0", HostPort: 80, Address: "10.1.1.2", Port: 8080},
		&contivlinux.NodePorts{Interface: "contiv-host"},
	)
	l.checkApplied("values", c)
	if err := l.own.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ca-00000000000a", TxQLen: -1}, PeerName: "ca-00000000000b"}); err != nil {
		t.Fatal(err)
	}
	names := removeLeftovers(t, l.own.path)
	for _, want := range []string{
		"link ca-00000000000a", "link contiv-host", "link cv-0123", "link half", "route to 10.3.0.0/16 by eth0", "route to 10.4.0.0/16 by eth0",
		"table inet contiv", "table arp contiv", "table inet contiv-ports", "table inet contiv-node-ports",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	if after := l.own.text(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if after := l.pod.text(t); after != podBefore {
		t.Errorf("in the pod before:\n%s\nafter:\n%s", podBefore, after)
	}
	if names := removeLeftovers(t, l.own.path); len(names) > 0 {
		t.Errorf("the second time: %q", names)
	}
}

// TestLeftoverForeign: tables with the names of ours, but without their marks, stay.
func TestLeftoverForeign(t *testing.T) {
	n := newNS(t)
	n.foreign(t, nftables.Table{Family: nftables.TableFamilyINet, Name: "contiv"}, nftables.Table{Family: nftables.TableFamilyARP, Name: "contiv"},
		nftables.Table{Family: nftables.TableFamilyINet, Name: "contiv-ports"}, nftables.Table{Family: nftables.TableFamilyINet, Name: "contiv-node-ports"})
	before := n.text(t)
	if names := removeLeftovers(t, n.path); len(names) > 0 || n.text(t) != before || strings.Count(before, " theirs: ") != 4 {
		t.Errorf("%q\nbefore:\n%s\nafter:\n%s", names, before, n.text(t))
	}
	if _, err := leftover.Open(t.TempDir()); err == nil {
		t.Error("a folder is a namespace")
	}
	if _, err := leftover.Open("/nowhere"); err == nil {
		t.Error("a file that does not exist is a namespace")
	}
}
