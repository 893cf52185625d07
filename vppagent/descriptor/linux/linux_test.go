package linux_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/namespace"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

// law is the test of a kind of value: one value of it, another of the same key, and the values they need.
type law struct {
	name     string
	needs    []proto.Message
	one, two proto.Message
}

func veth(name, peer string, ns *namespace.NetNamespace, change func(*interfaces.Interface)) *interfaces.Interface {
	m := &interfaces.Interface{
		Name: name, Type: interfaces.Interface_VETH, HostIfName: name, Enabled: true, Namespace: ns,
		Link: &interfaces.Interface_Veth{Veth: &interfaces.VethLink{PeerIfName: peer}},
	}
	if change != nil {
		change(m)
	}
	return m
}

func dummy(name string, change func(*interfaces.Interface)) *interfaces.Interface {
	m := &interfaces.Interface{Name: name, Type: interfaces.Interface_DUMMY, HostIfName: name, Enabled: true}
	if change != nil {
		change(m)
	}
	return m
}

func (l *lab) laws() []law {
	addresses := func(list ...string) func(*interfaces.Interface) {
		return func(m *interfaces.Interface) { m.IpAddresses = list }
	}
	eth := veth("eth", "far", nil, addresses("10.0.0.1/24", "2001:db8::1/64"))
	pair := []proto.Message{veth("a", "b", nil, addresses("10.1.0.1/24")), veth("b", "a", l.pod.ref(), addresses("10.1.0.2/24", "169.254.1.5/30", "2001:db8:1::2/64"))}
	return []law{
		{
			name: "dummy", one: dummy("eth", addresses("10.0.0.1/24", "2001:db8::1/64")),
			two: dummy("eth", func(m *interfaces.Interface) {
				m.IpAddresses, m.Mtu, m.PhysAddress, m.Enabled = []string{"10.0.0.1/24", "10.0.0.2/24"}, 1400, "02:00:00:00:00:07", false
			}),
		},
		{
			name: "dummy, another name", one: dummy("eth", nil),
			two: dummy("eth", func(m *interfaces.Interface) { m.HostIfName, m.Namespace = "other", l.pod.ref() }),
		},
		{
			name: "veth", needs: pair[1:], one: pair[0],
			two: veth("a", "b", nil, func(m *interfaces.Interface) { m.HostIfName, m.Mtu = "a2", 1300 }),
		},
		{name: "veth, the other end", needs: pair[:1], one: pair[1], two: veth("b", "a", nil, nil)},
		{
			name: "veth, checksums", needs: pair[:1], one: pair[1],
			two: veth("b", "a", l.pod.ref(), func(m *interfaces.Interface) {
				m.IpAddresses = pair[1].(*interfaces.Interface).IpAddresses
				m.GetVeth().TxChecksumOffloading = interfaces.VethLink_CHKSM_OFFLOAD_DISABLED
			}),
		},
		{name: "veth, one end alone", one: pair[1], two: veth("b", "a", l.pod.ref(), addresses("10.1.0.3/24"))},
		{
			name: "loopback", one: &interfaces.Interface{Name: "loop", Type: interfaces.Interface_LOOPBACK, HostIfName: "lo", Enabled: true, IpAddresses: []string{"10.7.0.1/32"}},
			two: &interfaces.Interface{Name: "loop", Type: interfaces.Interface_LOOPBACK, HostIfName: "lo", Enabled: true, IpAddresses: []string{"10.7.0.2/32"}},
		},
		{
			name: "existing", one: &interfaces.Interface{Name: "there", Type: interfaces.Interface_EXISTING, HostIfName: "there0", Enabled: true, IpAddresses: []string{"10.8.0.1/24"}},
			two: &interfaces.Interface{Name: "there", Type: interfaces.Interface_EXISTING, HostIfName: "there0", IpAddresses: []string{"10.8.0.1/24", "10.8.0.2/24"}},
		},
		{
			name: "route", needs: []proto.Message{eth}, one: &l3.Route{OutgoingInterface: "eth", DstNetwork: "10.9.0.0/16", GwAddr: "10.0.0.9"},
			two: &l3.Route{OutgoingInterface: "eth", DstNetwork: "10.9.0.0/16", GwAddr: "10.0.0.8", Metric: 7, Scope: l3.Route_SITE},
		},
		{
			name: "route, on the link", needs: []proto.Message{eth}, one: &l3.Route{OutgoingInterface: "eth", DstNetwork: "10.9.0.0/16", Scope: l3.Route_LINK},
			two: &l3.Route{OutgoingInterface: "eth", DstNetwork: "10.9.0.0/16", Scope: l3.Route_HOST},
		},
		{
			name: "route, IPv6", needs: pair, one: &l3.Route{OutgoingInterface: "b", DstNetwork: "2001:db8:9::/48", GwAddr: "2001:db8:1::9"},
			two: &l3.Route{OutgoingInterface: "b", DstNetwork: "2001:db8:9::/48", Metric: 5},
		},
		{
			name: "route, default", needs: pair, one: &l3.Route{OutgoingInterface: "b", DstNetwork: "0.0.0.0/0", GwAddr: "10.1.0.1"},
			two: &l3.Route{OutgoingInterface: "b", DstNetwork: "0.0.0.0/0"},
		},
		{
			name: "route, IPv6 default", needs: pair, one: &l3.Route{OutgoingInterface: "b", DstNetwork: "::/0", GwAddr: "2001:db8:1::1"},
			two: &l3.Route{OutgoingInterface: "b", DstNetwork: "::/0", Metric: 9},
		},
		{
			name: "handover", needs: []proto.Message{eth},
			one: &contivlinux.Handover{
				Interface: "eth", VppLinks: []string{"cv-"}, Masquerade: []string{"10.1.0.0/16", "2001:db8:1::/48"}, Exempt: []string{"10.0.0.0/8"},
				Tunnels: []*contivlinux.Handover_Tunnel{
					{NodeAddress: "192.168.16.1", VppAddress: "169.254.1.6", Port: 4789}, {NodeAddress: "2001:db8::1", VppAddress: "fd69:254:1::6", Port: 4789},
				},
			},
			two: &contivlinux.Handover{
				Interface: "eth", VppLinks: []string{"cv-", "tap"}, Masquerade: []string{"10.2.0.0/16"}, Refuse: "eth",
				Detours: []*contivlinux.Handover_Detour{
					{Sources: []string{"10.2.0.0/16", "192.168.16.2/32"}, Address: "169.254.1.9"}, {Sources: []string{"2001:db8:16::2/128"}, Address: "fd69:254:1::9"},
				},
			},
		},
		{
			name: "host port", one: &contivlinux.HostPort{HostAddress: "0.0.0.0", HostPort: 80, Address: "10.1.0.2", Port: 8080},
			two: &contivlinux.HostPort{HostAddress: "0.0.0.0", HostPort: 80, Address: "10.1.0.3", Port: 8081},
		},
		{
			name: "host port, IPv6", one: &contivlinux.HostPort{Protocol: contivlinux.HostPort_UDP, HostAddress: "2001:db8::1", HostPort: 53, Address: "2001:db8:1::2", Port: 53},
			two: &contivlinux.HostPort{Protocol: contivlinux.HostPort_UDP, HostAddress: "2001:db8::1", HostPort: 53, Address: "2001:db8:1::2", Port: 54},
		},
		{
			name: "host port, beside another", needs: []proto.Message{&contivlinux.HostPort{HostAddress: "0.0.0.0", HostPort: 80, Address: "10.1.0.2", Port: 8080}},
			one: &contivlinux.HostPort{Protocol: contivlinux.HostPort_SCTP, HostAddress: "0.0.0.0", HostPort: 80, Address: "10.1.0.4", Port: 36412},
			two: &contivlinux.HostPort{Protocol: contivlinux.HostPort_SCTP, HostAddress: "0.0.0.0", HostPort: 80, Address: "10.1.0.4", Port: 36413},
		},
		{
			name: "node ports", needs: []proto.Message{eth},
			one: &contivlinux.NodePorts{Interface: "eth", Addresses: []*contivlinux.NodePorts_Address{
				{NodeAddress: "192.168.16.1", StandIn: "169.254.1.128", HostAddress: "10.1.1.1"},
				{NodeAddress: "2001:db8::1", StandIn: "fd69:254:1::80", HostAddress: "2001:db8:1::1"},
			}, Returns: []*contivlinux.NodePorts_Return{{HostAddress: "10.1.1.1", StandIn: "169.254.1.10"}, {HostAddress: "2001:db8:1::1", StandIn: "fd69:254:1::a"}}},
			two: &contivlinux.NodePorts{Interface: "eth", Addresses: []*contivlinux.NodePorts_Address{{NodeAddress: "192.168.16.1", StandIn: "169.254.1.129", HostAddress: "10.1.1.1"}}},
		},
		{
			name: "node port", needs: []proto.Message{eth, &contivlinux.NodePorts{Interface: "eth"}},
			one: &contivlinux.NodePort{Protocol: contivlinux.NodePort_UDP, Port: 30080, Ipv4: contivlinux.NodePort_NODE},
			two: &contivlinux.NodePort{Protocol: contivlinux.NodePort_UDP, Port: 30080, Ipv4: contivlinux.NodePort_ALL, Ipv6: contivlinux.NodePort_NODE},
		},
		{
			name: "neighbour", needs: pair, one: &l3.ARPEntry{Interface: "b", IpAddress: "10.1.0.1", HwAddress: "02:00:00:00:00:01"},
			two: &l3.ARPEntry{Interface: "b", IpAddress: "10.1.0.1", HwAddress: "02:00:00:00:00:02"},
		},
		{
			name: "neighbour, IPv6", needs: []proto.Message{eth}, one: &l3.ARPEntry{Interface: "eth", IpAddress: "2001:DB8::9", HwAddress: "02:00:00:00:00:0A"},
			two: &l3.ARPEntry{Interface: "eth", IpAddress: "2001:DB8::9", HwAddress: "02:00:00:00:00:02"},
		},
	}
}

// TestLaws checks for every kind of value: the kernel has what the agent created, updated and deleted; both the agent that made an
// object and a fresh one with the journal recognise it, and write nothing twice; nothing remains after the removal.
func TestLaws(t *testing.T) {
	for _, law := range newLab(t).laws() {
		t.Run(law.name, func(t *testing.T) {
			l := newLab(t)
			for _, fresh := range l.laws() { // with its own namespaces
				if fresh.name == law.name {
					law = fresh
				}
			}
			if strings.HasPrefix(law.name, "dummy") && !l.own.hasDummies() {
				t.Skip("this kernel has no dummy links (module dummy)")
			}
			l.foreignLink("there0")
			l.foreignAddress("there0", "10.66.0.1/24")
			l.checkApplied("needs", l.put(law.needs...))
			text := func() string { return l.own.text(t) + "pod\n" + l.pod.text(t) }
			before := text()
			var first string
			for i, step := range []struct {
				what string
				m    proto.Message
			}{{"create", law.one}, {"update", law.two}, {"update back", law.one}} {
				last := text()
				l.checkApplied(step.what, l.put(step.m))
				if text() == last {
					t.Errorf("%s changed nothing in\n%s", step.what, last)
				}
				if i == 0 {
					first = text()
				}
				l.checkQuiet(step.what)
				for _, s := range l.agent.Snapshot().Values() {
					if s.Key == kv.Key(step.m) && cmp.Diff(step.m, s.Value, protocmp.Transform()) != "" {
						t.Errorf("%s: status %+v", step.what, s)
					}
				}
			}
			if got := sortedLinks(text()); got != sortedLinks(first) {
				t.Errorf("there and back:\n%s", cmp.Diff(sortedLinks(first), got))
			}
			l.checkApplied("delete", l.del(law.one))
			if got := text(); sortedLinks(got) != sortedLinks(before) && law.name != "loopback" && law.name != "existing" { // those stay up
				t.Errorf("deleting leaves something:\n%s", cmp.Diff(before, got))
			}
			if got := text(); !strings.Contains(got, "10.66.0.1/24") || strings.Contains(got, "10.8.0") || strings.Contains(got, "10.7.0") {
				t.Errorf("after the deletion:\n%s", got)
			}
			l.checkQuiet("delete")
			l.want = kv.Values{}
			l.restart()
			l.checkApplied("all gone", l.resync())
			if got := text(); strings.Contains(got, "contiv-agent") || strings.Contains(got, "ca-") {
				t.Errorf("something of ours is left:\n%s", got)
			}
		})
	}
}

// sortedLinks sorts the links of a text by name: the kernel lists them in order of creation.
func sortedLinks(text string) string {
	var out []string
	for part := range strings.SplitSeq(text, "pod\n") {
		var blocks []string
		for line := range strings.Lines(part) {
			if strings.HasPrefix(line, " ") {
				blocks[len(blocks)-1] += line
			} else {
				blocks = append(blocks, line)
			}
		}
		out = append(out, strings.Join(slices.Sorted(slices.Values(blocks)), ""))
	}
	return strings.Join(out, "pod\n")
}

// foreignLink makes a link without our alias.
func (l *lab) foreignLink(name string) {
	l.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := l.own.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "x"}); err != nil {
		l.t.Fatal(err)
	}
}

// hasDummies reports whether the kernel makes dummy links.
func (n *netNS) hasDummies() bool {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "try"
	d := &netlink.Dummy{LinkAttrs: attrs}
	return n.nl.LinkAdd(d) == nil && n.nl.LinkDel(d) == nil
}

func (l *lab) foreignAddress(link, address string) {
	l.t.Helper()
	k, err := l.own.nl.LinkByName(link)
	if err != nil {
		l.t.Fatal(err)
	}
	a, err := netlink.ParseAddr(address)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.own.nl.AddrAdd(k, a); err != nil {
		l.t.Fatal(err)
	}
}

// An agent that ends while it makes a pair leaves two spares, perhaps without marks. The next agent removes them, or makes the ends of them that it wants.
func TestUnfinishedPair(t *testing.T) {
	for _, marked := range []int{0, 1, 2} {
		for _, wanted := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("%d marked, %d wanted", marked, wanted), func(t *testing.T) {
				l := newLab(t)
				a, b := veth("a", "b", nil, nil), veth("b", "a", l.pod.ref(), nil)
				l.checkApplied("put", l.put(a, b))
				end, err := l.own.nl.LinkByName("a")
				if err == nil {
					err = l.own.nl.LinkDel(end)
				}
				attrs := netlink.NewLinkAttrs()
				attrs.Name = linux.Spare("a")
				if err == nil {
					err = l.own.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: linux.Spare("b")})
				}
				for _, mark := range [][2]string{{"a", "contiv-agent a peer b"}, {"b", "contiv-agent b peer a"}}[:marked] {
					if err == nil {
						end, err = l.own.nl.LinkByName(linux.Spare(mark[0]))
					}
					if err == nil {
						err = l.own.nl.LinkSetAlias(end, mark[1])
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				l.want = kv.Values{}
				for _, m := range []proto.Message{b, a}[:wanted] {
					l.want.Put(m)
				}
				l.restart()
				l.commit(event.Downstream, nil) // the agent looks before it knows what is wanted
				l.checkApplied("restart", l.resync())
				l.checkQuiet("restart")
				if own, pod := strings.Contains(l.own.text(t), "contiv-agent a peer b"), strings.Contains(l.pod.text(t), `b veth "contiv-agent b peer a"`); own != (wanted > 0) || pod != (wanted > 0) {
					t.Errorf("in the agent's namespace %v, in the pod's %v, in\n%s", own, pod, l.own.text(t))
				}
				if wanted == 0 && strings.Contains(l.own.text(t), "ca-") {
					t.Errorf("a spare is left:\n%s", l.own.text(t))
				}
			})
		}
	}
}

// The agent does not take over foreign objects.
func TestForeignStays(t *testing.T) {
	l := newLab(t)
	l.foreignLink("eth")
	eth := veth("eth", "far", nil, nil)
	before := l.own.text(t)
	if s := state(l.put(eth), eth); s.State != event.Retrying || !strings.Contains(s.Err, "a link eth that is not ours") {
		t.Errorf("somebody else's link: %+v", s)
	}
	l.del(eth)
	if got := l.own.text(t); got != before {
		t.Errorf("somebody else's link:\n%s", cmp.Diff(before, got))
	}
	l.checkApplied("put", l.put(veth("mine", "far", nil, func(m *interfaces.Interface) { m.IpAddresses = []string{"10.0.0.1/24"} })))
	link, err := l.own.nl.LinkByName("mine")
	if err != nil {
		t.Fatal(err)
	}
	_, dst, _ := net.ParseCIDR("10.9.0.0/16")
	if err := l.own.nl.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Gw: net.IPv4(10, 0, 0, 7)}); err != nil {
		t.Fatal(err)
	}
	route := &l3.Route{OutgoingInterface: "mine", DstNetwork: "10.9.0.0/16", GwAddr: "10.0.0.9"}
	if s := state(l.put(route), route); s.State != event.Retrying || !strings.Contains(s.Err, "file exists") {
		t.Errorf("somebody else's route: %+v", s)
	}
	l.del(route)
	if text := l.own.text(t); !strings.Contains(text, "via 10.0.0.7") {
		t.Errorf("somebody else's route is gone:\n%s", text)
	}
}

// The removal of an interface removes its routes, and they return with it.
func TestRoutesFollowTheirInterface(t *testing.T) {
	l := newLab(t)
	eth := veth("eth", "far", nil, func(m *interfaces.Interface) { m.IpAddresses = []string{"10.0.0.1/24"} })
	route := &l3.Route{OutgoingInterface: "eth", DstNetwork: "10.9.0.0/16", GwAddr: "10.0.0.9"}
	arp := &l3.ARPEntry{Interface: "eth", IpAddress: "10.0.0.9", HwAddress: "02:00:00:00:00:01"}
	l.checkApplied("put", l.put(eth, route, arp))
	before := l.own.text(t)
	for _, m := range []proto.Message{route, arp} {
		if s := state(l.del(eth), m); s.State != event.Pending {
			t.Errorf("without the interface: %+v", s)
		}
		l.checkApplied("put", l.put(eth))
		if got := l.own.text(t); got != before {
			t.Errorf("the interface is back:\n%s", cmp.Diff(before, got))
		}
	}
	// A change of the namespace moves everything along.
	moved := proto.Clone(eth).(*interfaces.Interface)
	moved.Namespace = l.pod.ref()
	l.checkApplied("move", l.put(moved))
	if text := l.pod.text(t); !strings.Contains(text, "via 10.0.0.9") || !strings.Contains(text, "neighbour 10.0.0.9") {
		t.Errorf("moved:\n%s", text)
	}
	l.checkQuiet("moved")
}

// A deleted namespace has no objects, and does not make other values fail.
func TestNamespaceThatIsNotThere(t *testing.T) {
	l := newLab(t)
	m := dummy("eth", func(m *interfaces.Interface) {
		m.Namespace = &namespace.NetNamespace{Type: namespace.NetNamespace_NSID, Reference: "nobody-has-made-this"}
	})
	other := veth("other", "far", nil, nil)
	c := l.put(m, other)
	if s := state(c, m); s.State != event.Retrying || !strings.Contains(s.Err, "/run/netns/nobody-has-made-this") {
		t.Errorf("%+v", s)
	}
	if s := state(c, other); s.State != event.Configured {
		t.Errorf("another one: %+v", s)
	}
	l.checkApplied("delete", l.del(m))
}

func TestRefuses(t *testing.T) {
	l := newLab(t)
	for want, m := range map[string]proto.Message{
		"type: VRF_DEVICE: not supported":                       &interfaces.Interface{Name: "a", Type: interfaces.Interface_VRF_DEVICE},
		"vrf_master_interface: not supported":                   dummy("a", func(m *interfaces.Interface) { m.VrfMasterInterface = "vrf" }),
		`host_if_name: "a name of 16 byt" is no name of a link`: dummy("a", func(m *interfaces.Interface) { m.HostIfName = "a name of 16 byt" }),
		`host_if_name: "a/b" is no name of a link`:              dummy("a", func(m *interfaces.Interface) { m.HostIfName = "a/b" }),
		"veth.peer_if_name: empty":                              veth("a", "", nil, nil),
		"veth.rx_checksum_offloading: not supported": veth("a", "b", nil, func(m *interfaces.Interface) {
			m.GetVeth().RxChecksumOffloading = interfaces.VethLink_CHKSM_OFFLOAD_DISABLED
		}),
		"veth.peer_if_name: the interface itself":                      veth("a", "a", nil, nil),
		"tap.vpp_tap_if_name: empty":                                   &interfaces.Interface{Name: "a", Type: interfaces.Interface_TAP_TO_VPP},
		`phys_address: "x" is no MAC address`:                          dummy("a", func(m *interfaces.Interface) { m.PhysAddress = "x" }),
		`ip_addresses[0]: "10.0.0.1" is no address with prefix length`: dummy("a", func(m *interfaces.Interface) { m.IpAddresses = []string{"10.0.0.1"} }),
		"ip_addresses: 10.0.0.1/24 twice":                              dummy("a", func(m *interfaces.Interface) { m.IpAddresses = []string{"10.0.0.1/24", "10.0.0.1/24"} }),
		"namespace.type: MICROSERVICE is not supported: no container runtime is asked": dummy("a", func(m *interfaces.Interface) {
			m.Namespace = &namespace.NetNamespace{Type: namespace.NetNamespace_MICROSERVICE}
		}),
		`namespace.reference: "../x" is no name`: dummy("a", func(m *interfaces.Interface) {
			m.Namespace = &namespace.NetNamespace{Type: namespace.NetNamespace_NSID, Reference: "../x"}
		}),
		`dst_network: "x" is no address with prefix length`:              &l3.Route{OutgoingInterface: "a", DstNetwork: "x"},
		"gw_addr: ::1 is of another family than 0.0.0.0/0":               &l3.Route{OutgoingInterface: "a", DstNetwork: "0.0.0.0/0", GwAddr: "::1"},
		"scope: LINK has no gw_addr":                                     &l3.Route{OutgoingInterface: "a", DstNetwork: "0.0.0.0/0", GwAddr: "10.0.0.1", Scope: l3.Route_LINK},
		`hw_address: "x" is no MAC address`:                              &l3.ARPEntry{Interface: "a", IpAddress: "10.0.0.1", HwAddress: "x"},
		"tunnels[0].port: 0 is not a port (1 to 65535)":                  &contivlinux.Handover{Interface: "a", Tunnels: []*contivlinux.Handover_Tunnel{{NodeAddress: "10.0.0.1", VppAddress: "10.0.0.2"}}},
		"tunnels[0].vpp_address: ::1 is of another family than 10.0.0.1": &contivlinux.Handover{Interface: "a", Tunnels: []*contivlinux.Handover_Tunnel{{NodeAddress: "10.0.0.1", VppAddress: "::1", Port: 1}}},
		"detours[0].sources[0]: ::/0 is of another family than 10.0.0.1": &contivlinux.Handover{Interface: "a", Detours: []*contivlinux.Handover_Detour{{Sources: []string{"::/0"}, Address: "10.0.0.1"}}},
		`detours[0].address: "" is not an IP address`:                    &contivlinux.Handover{Interface: "a", Detours: []*contivlinux.Handover_Detour{{}}},
		`host_address: "" is not an IP address`:                          &contivlinux.HostPort{HostPort: 80, Address: "10.0.0.1", Port: 80},
		"host_port: 0 is not a port (1 to 65535)":                        &contivlinux.HostPort{HostAddress: "0.0.0.0", Address: "10.0.0.1", Port: 80},
		"port: 65536 is not a port (1 to 65535)":                         &contivlinux.HostPort{HostAddress: "0.0.0.0", HostPort: 81, Address: "10.0.0.1", Port: 65536},
		"address: 10.0.0.1 is of another family than ::":                 &contivlinux.HostPort{HostAddress: "::", HostPort: 80, Address: "10.0.0.1", Port: 80},
		"protocol: unknown 9":                                            &contivlinux.HostPort{Protocol: 9, HostAddress: "0.0.0.0", HostPort: 80, Address: "10.0.0.1", Port: 80},
		`vpp_links[0]: "" begins no name of a link`:                      &contivlinux.Handover{Interface: "a", VppLinks: []string{""}},
		"interface: empty":                                               &contivlinux.NodePorts{},
		"addresses[0].stand_in: ::1 is of another family than 10.0.0.1":  &contivlinux.NodePorts{Interface: "a", Addresses: []*contivlinux.NodePorts_Address{{NodeAddress: "10.0.0.1", StandIn: "::1"}}},
		"returns[0].stand_in: ::1 is of another family than 10.0.0.1":    &contivlinux.NodePorts{Interface: "a", Returns: []*contivlinux.NodePorts_Return{{HostAddress: "10.0.0.1", StandIn: "::1"}}},
		"port: 0 is not a port (1 to 65535)":                             &contivlinux.NodePort{},
		"protocol: unknown 7":                                            &contivlinux.NodePort{Port: 1, Protocol: 7},
		"ipv6: unknown 7":                                                &contivlinux.NodePort{Port: 1, Ipv6: 7},
		"ipv4, ipv6: nobody's packets reach VPP":                         &contivlinux.NodePort{Port: 1},
		`ip_address: "x" is no address`:                                  &l3.ARPEntry{Interface: "a", IpAddress: "x", HwAddress: "02:00:00:00:00:01"},
	} {
		if s := state(l.put(m), m); s.State != event.Invalid || s.Err != want {
			t.Errorf("%s: %+v", want, s)
		}
	}
	c := l.put(veth("one", "two", nil, nil), veth("two", "three", nil, nil))
	if s := state(c, veth("one", "two", nil, nil)); s.State != event.Retrying || s.Err != `veth.peer_if_name: two has "three" for its peer` {
		t.Errorf("%+v", s)
	}
}

// TestMessageIsInverse: the journal stores the result of Message, and Compile reads it.
func TestMessageIsInverse(t *testing.T) {
	for _, law := range newLab(t).laws() {
		for _, m := range []proto.Message{law.one, law.two} {
			key := kv.Key(m)
			var d *descriptor.Descriptor
			for _, o := range slices.Concat(linux.All(), nodeports.All()) {
				if o.Has(key) {
					d = o
				}
			}
			s, err := d.Compile(key, m)
			if err != nil {
				t.Fatal(err)
			}
			back := d.Message(s)
			again, err := d.Compile(key, back)
			if err != nil || kv.Key(back) != key || !d.Equal(s, again) || !d.Equal(again, s) {
				t.Errorf("%s: %v: %v", key, err, fmt.Sprint(back))
			}
		}
	}
}

// TestFilterIsRepaired: a resync replaces rules that another program removed, and leaves foreign tables alone.
func TestFilterIsRepaired(t *testing.T) {
	l := newLab(t)
	eth := veth("eth", "far", nil, nil)
	m := &contivlinux.Handover{Interface: "eth", VppLinks: []string{"cv-"}, Masquerade: []string{"10.1.0.0/16"}, Tunnels: []*contivlinux.Handover_Tunnel{{NodeAddress: "192.168.16.1", VppAddress: "169.254.1.6", Port: 4789}}}
	own, err := netns.GetFromPath(l.own.path)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(own)))
	if err != nil {
		t.Fatal(err)
	}
	foreign := c.AddTable(&nftables.Table{Name: "foreign", Family: nftables.TableFamilyINet})
	c.AddChain(&nftables.Chain{Name: "mine", Table: foreign})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	l.checkApplied("put", l.put(eth, m))
	before := l.own.filter(t)
	if !strings.Contains(before, "contiv made-cc0d5bafb1871348-6:") { // the fingerprint of another process
		t.Errorf("another fingerprint in\n%s", before)
	}
	if !strings.Contains(before, "contiv pods-out: 1 rules") || !strings.Contains(before, "foreign mine") {
		t.Fatal(before)
	}
	c.FlushTable(&nftables.Table{Name: "contiv", Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	l.checkApplied("resync", l.resync())
	if got := l.own.filter(t); got != before {
		t.Errorf("after a resync:\n%s", cmp.Diff(before, got))
	}
	l.checkQuiet("repaired")
	l.del(m)
	if got := l.own.filter(t); strings.Contains(got, "contiv") || !strings.Contains(got, "foreign mine") {
		t.Errorf("after the deletion:\n%s", got)
	}
}

// TestNamespaceThatIsAPlainFile: a container runtime leaves the file of a namespace for a moment after it has removed the namespace.
func TestNamespaceThatIsAPlainFile(t *testing.T) {
	l := newLab(t)
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := veth("a", "b", &namespace.NetNamespace{Type: namespace.NetNamespace_FD, Reference: path}, nil)
	if s := state(l.put(m), m); s.State != event.Retrying || !strings.Contains(s.Err, "no network namespace") {
		t.Errorf("%+v", s)
	}
	l.checkApplied("delete", l.del(m))
}

// TestDefaultRouteFollowsItsGateway: a gateway that only another route of ours leads to.
func TestDefaultRouteFollowsItsGateway(t *testing.T) {
	l := newLab(t)
	eth := veth("eth", "far", l.pod.ref(), func(m *interfaces.Interface) { m.IpAddresses = []string{"10.1.1.2/32"} })
	c := l.put(eth, &l3.Route{OutgoingInterface: "eth", DstNetwork: "0.0.0.0/0", GwAddr: "169.254.1.1"}, &l3.Route{OutgoingInterface: "eth", DstNetwork: "169.254.1.1/32", Scope: l3.Route_LINK})
	l.checkApplied("put", c)
	l.checkQuiet("put")
}

// TestForwardDrops: chains that drop forwarded packets by default, of other programs only.
func TestForwardDrops(t *testing.T) {
	l := newLab(t)
	own, err := netns.GetFromPath(l.own.path)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(own)))
	if err != nil {
		t.Fatal(err)
	}
	add := func(table string, family nftables.TableFamily, name string, hook *nftables.ChainHook, policy nftables.ChainPolicy) {
		c.AddChain(&nftables.Chain{
			Name: name, Table: c.AddTable(&nftables.Table{Name: table, Family: family}), Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityFilter, Policy: &policy,
		})
	}
	add("filter", nftables.TableFamilyIPv4, "FORWARD", nftables.ChainHookForward, nftables.ChainPolicyDrop)
	add("filter", nftables.TableFamilyIPv6, "FORWARD", nftables.ChainHookForward, nftables.ChainPolicyAccept)
	add("filter", nftables.TableFamilyIPv4, "INPUT", nftables.ChainHookInput, nftables.ChainPolicyDrop)
	add("contiv", nftables.TableFamilyINet, "ours", nftables.ChainHookForward, nftables.ChainPolicyDrop)
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := linux.ForwardDrops(l.own.path)
	if want := []string{"ip filter FORWARD"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
