package vppagent_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vppagent"
	aclvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// located returns the answer with the node's interfaces.
func (l *lab) located(found event.Located) {
	l.t.Helper()
	l.seq++
	l.agent.Step(context.Background(), &event.Txn{Seq: l.seq, Cause: "locate", Resync: event.Full, Values: l.want, Locate: &event.Locate{Override: found}})
	l.note(nil)
	l.interfaces()
}

// interfaces lets the agent dump VPP's interfaces.
func (l *lab) interfaces() {
	l.agent.InterfacesChanged()
	l.agent.Step(context.Background(), nil)
}

// closed returns the interfaces that nothing passes.
func (l *lab) closed() (names []string) {
	for _, line := range strings.Split(l.sim.Dump(), "\n") {
		words := strings.Fields(line)
		if len(words) == 4 && words[0] == "acl-list" && words[2] == "input" && words[3] == `"ca1:d:all"` && strings.Contains(l.sim.Dump(), "acl-list "+words[1]+` output "ca1:d:all"`) {
			names = append(names, words[1])
		}
	}
	return names
}

func (l *lab) wantClosed(when string, want ...string) {
	l.t.Helper()
	if got := l.closed(); !slices.Equal(got, want) {
		l.t.Errorf("%s: closed %q, want %q\n%s", when, got, want, l.sim.Dump())
	}
}

// TestUnknownInterfacesAreClosed: an interface that a CNI may have made for a pod is closed until a value states what it passes, and
// again after the value is removed. The node's interfaces, and those that a value names, stay open.
func TestUnknownInterfacesAreClosed(t *testing.T) {
	l := newLab(t, vppagent.Config{DenyUnknown: true})
	for _, i := range []sim.Interface{{Name: "uplink"}, {Name: "host-eth1"}, {Name: "tap7"}, {Name: "tap8"}, {Name: "memif1/0"}, {Name: "eth9"}, {Name: "tap9", Addresses: []netip.Prefix{netip.MustParsePrefix("172.16.0.1/24")}}} {
		l.sim.AddInterface(i)
	}
	pods(l)
	l.allConfigured(l.put(&nat.Nat44Global{Forwarding: true}))
	l.wantClosed("roles unknown", "tap1", "tap2") // interfaces whose tags name pods
	l.located(event.Located{Uplink: "uplink", Host: "tap7"})
	l.wantClosed("roles known", "host-eth1", "memif1/0", "tap1", "tap2", "tap8")

	open := func(name string) *contivacl.InterfaceACLs { return &contivacl.InterfaceACLs{Interface: name} }
	l.allConfigured(l.put(open("tap1"), &nat.Nat44Interface{Name: "tap1", NatInside: true, NatOutside: true}))
	l.wantClosed("tap1 evaluated", "host-eth1", "memif1/0", "tap2", "tap8")
	l.allConfigured(l.put(&nat.Nat44Interface{Name: "tap2", NatInside: true, NatOutside: true}))
	l.wantClosed("services on tap2, which nobody evaluated", "host-eth1", "memif1/0", "tap2", "tap8")
	l.writes()
	l.restartAgent()
	l.located(event.Located{Uplink: "uplink", Host: "tap7"})
	l.quiet("restart of the agent")
	l.wantClosed("restart of the agent", "host-eth1", "memif1/0", "tap2", "tap8")

	l.allConfigured(l.del(kv.InterfaceACLsKey("tap1")))
	l.wantClosed("tap1 is nobody's any more", "host-eth1", "memif1/0", "tap1", "tap2", "tap8")
	addPod(l, "tap3", "10.1.1.4")
	l.interfaces()
	l.wantClosed("a new interface", "host-eth1", "memif1/0", "tap1", "tap2", "tap3", "tap8")
	l.sim.RemoveInterface("tap8")
	l.interfaces()
	l.wantClosed("tap8 is gone", "host-eth1", "memif1/0", "tap1", "tap2", "tap3")
	l.located(event.Located{Uplink: "uplink", Host: "host-eth1"})
	l.wantClosed("the node's link moved", "memif1/0", "tap1", "tap2", "tap3", "tap7")
}

// TestUnknownInterfacesStayOpen: nothing is closed without DenyUnknown.
func TestUnknownInterfacesStayOpen(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	pods(l)
	l.allConfigured(l.put(&nat.Nat44Global{Forwarding: true}))
	l.located(event.Located{Uplink: "uplink"})
	l.wantClosed("not asked for")
}

// TestClosedEarlyDespiteRefusals: VPP refuses to close pods for a fresh agent; its first transaction closes them.
func TestClosedEarlyDespiteRefusals(t *testing.T) {
	for _, refused := range []string{"acl_add_replace", "acl_interface_set_acl_list"} {
		t.Run(refused, func(t *testing.T) {
			l := newLab(t, vppagent.Config{DenyUnknown: true, DenyEarly: true})
			pods(l)
			l.interfaces()
			l.wantClosed("at first", "tap1", "tap2")
			l.sim.Fail(func(name string) (int32, bool) {
				if name == refused {
					return -1, false
				}
				return 0, false
			})
			l.restartVPP()
			l.interfaces()
			l.wantClosed("refused")
			l.sim.Fail(nil)
			l.allConfigured(l.resync())
			l.wantClosed("accepted", "tap1", "tap2")
		})
	}
}

// TestAliasKeepsItsLists: lists wanted under the tag of an interface are lists of it.
func TestAliasKeepsItsLists(t *testing.T) {
	l := newLab(t, vppagent.Config{DenyUnknown: true})
	pods(l)
	l.allConfigured(l.put(&nat.Nat44Global{}, &contivacl.InterfaceACLs{Interface: "default/tap1"}))
	l.wantClosed("by tag", "tap2")
}

// TestClosedFirstOpenLast restarts VPP below pods with lists, services and NAT. Nothing passes an interface with lists when the first
// message of NAT is sent, and until the last is answered; roles come before mappings, and the uplink is never closed.
func TestClosedFirstOpenLast(t *testing.T) {
	l := newLab(t, vppagent.Config{DenyUnknown: true})
	interfaces := func() {
		l.sim.AddInterface(sim.Interface{Name: "uplink", Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24")}})
		pods(l)
	}
	interfaces()
	l.allConfigured(l.put(&nat.Nat44Global{Forwarding: true}, &nat.Nat44Interface{Name: "uplink", OutputFeature: true}, dnat("default/web", "10.96.0.10", 80, "10.1.1.2:8080"),
		&nat.Nat44Interface{Name: "tap1", NatInside: true, NatOutside: true}, &nat.Nat44Interface{Name: "tap2", NatInside: true, NatOutside: true},
		accessList("a", rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80)), &nat.Nat44AddressPool{VrfId: ^uint32(0), FirstIp: "10.1.1.254", TwiceNat: true},
		&contivacl.InterfaceACLs{Interface: "tap1", Input: []string{"a"}, Output: []string{"a"}}, &contivacl.InterfaceACLs{Interface: "tap2"},
		&contivacl.InterfaceACLs{Interface: "uplink", Input: []string{"a"}},
	))
	l.located(event.Located{Uplink: "uplink"})
	l.wantClosed("at first")
	for _, when := range []string{"interfaces before the agent", "interfaces after the agent"} {
		if when != "interfaces before the agent" {
			l.sim.RemoveInterface("tap1")
			l.sim.RemoveInterface("tap2")
		}
		l.sim.Restart()
		closed, begun := map[string]bool{}, false
		l.sim.After(func(r sim.Record) {
			name := ""
			for _, n := range []string{"tap1", "tap2", "uplink"} {
				if strings.Contains(r.Text, "sw_if_index="+n+" ") {
					name = n
				}
			}
			switch {
			case r.Name == "acl_interface_set_acl_list":
				closed[name] = strings.Contains(r.Text, `input=["ca1:d:all"] output=["ca1:d:all"]`)
				if closed["uplink"] {
					t.Errorf("%s: %s", when, r.Text)
				}
			case r.Write && strings.HasPrefix(r.Name, "nat44"):
				if begun = true; !closed["tap1"] && (name == "tap1" || when == "interfaces before the agent") {
					t.Errorf("%s: half a NAT while tap1 is open: %s", when, r.Text)
				}
				if strings.HasSuffix(r.Name, "static_mapping") && when == "interfaces before the agent" && strings.Count(l.sim.Dump(), " inside") != 2 {
					t.Errorf("%s: a mapping before roles:\n%s", when, l.sim.Dump())
				}
			}
		})
		l.agent.Connected(l.connected())
		l.agent.Step(context.Background(), nil)
		if when != "interfaces before the agent" {
			pods(l)
			l.interfaces()
		}
		l.sim.After(nil)
		l.wantClosed(when)
		if !begun || closed["tap1"] || closed["tap2"] {
			t.Errorf("%s: NAT %v, closed %v", when, begun, closed)
		}
		l.allConfigured(l.resync())
	}
}

// TestAnswersOfEarlierPackets: VPP forwards a datagram before the agent closes the interfaces. The server's answer a little later makes no session, which
// would admit the client for good.
func TestAnswersOfEarlierPackets(t *testing.T) {
	client, server := netip.MustParseAddrPort("10.1.1.2:4000"), netip.MustParseAddrPort("10.1.1.3:53")
	paused := 0
	var l *lab
	passes := func(in string, from, to netip.AddrPort) bool {
		return len(l.sim.Send(in, packet.NewUDP(from, to)).Out) == 1
	}
	l = newLab(t, vppagent.Config{DenyUnknown: true, Pause: func(_ context.Context, d time.Duration) {
		if paused++; d > 20*time.Millisecond || passes("tap2", server, client) {
			t.Errorf("pause %d of %s: the answer passes", paused, d)
		}
	}})
	pods(l)
	want := []proto.Message{
		accessList("open", rule(acl.ACL_Rule_REFLECT, "", "", "")), accessList("shut", rule(acl.ACL_Rule_DENY, "", "", "")),
		&contivacl.InterfaceACLs{Interface: "tap1", Input: []string{"open"}, Output: []string{"open"}},
		&contivacl.InterfaceACLs{Interface: "tap2", Input: []string{"open"}, Output: []string{"shut"}},
	}
	for _, when := range []string{"at first", "after a restart of VPP"} {
		if !passes("tap1", client, server) {
			t.Fatalf("%s: closed before the agent", when)
		}
		paused = 0
		l.allConfigured(l.put(want...))
		if passes("tap1", client, server) || !passes("tap2", server, netip.MustParseAddrPort("10.1.1.2:4001")) || paused != 1 {
			t.Errorf("%s: the client's datagrams pass, or the server's do not, after %d pauses", when, paused)
		}
		l.restartVPP()
	}
	l.allConfigured(l.resync())
	paused = 0
	l.allConfigured(l.put(accessList("shut", rule(acl.ACL_Rule_DENY, "udp", "", "", 1, 1000))))
	if paused != 0 {
		t.Errorf("%d pauses for a list of open interfaces", paused)
	}
}

// TestOwnPodsAreClosed: the interface that a value makes for a pod accepts packets, and learns neighbours of IPv6, only after it has access lists: those
// that deny everything until its own are wanted, also when VPP restarts below it.
func TestOwnPodsAreClosed(t *testing.T) {
	for _, addresses := range [][]string{{"169.254.1.1/32"}, nil} { // without an address, nothing else delays the opening
		testOwnPods(t, lender("gateway", addresses...))
	}
}

func testOwnPods(t *testing.T, gateway *interfaces.Interface) {
	t.Helper()
	l := newLab(t, vppagent.Config{DenyUnknown: true, Descriptors: aclvalues.ClosePods(all.All())})
	name := kv.PodInterface("default/web", "1234")
	pod := packets(1450)
	pod.Name, pod.Unnumbered = name, &interfaces.Interface_Unnumbered{InterfaceWithIp: "gateway"}
	arp := &l3.ARPEntry{Interface: name, IpAddress: "10.1.1.2", PhysAddress: "02:fe:00:00:00:01", Static: true}
	lists := &contivacl.InterfaceACLs{Interface: name, Input: []string{"a"}, Output: []string{"a"}}
	var order []string
	opening := []string{"acl_interface_set_acl_list", "ip_neighbor_add_del", "sw_interface_ip6_enable_disable", "sw_interface_set_unnumbered"}
	l.sim.After(func(r sim.Record) {
		if r.Write && slices.Contains(opening, r.Name) {
			order = append(order, r.Name)
		}
	})
	defer l.sim.After(nil)
	want := func(when string, names ...string) {
		t.Helper()
		if order = slices.Compact(order); !slices.Equal(order, names) { // a second request opens no direction
			t.Errorf("%s: %q, want %q", when, order, names)
		}
		order = nil
	}
	l.allConfigured(l.put(gateway, pod, arp, &nat.Nat44Global{Forwarding: true}))
	l.wantClosed("a new pod", "host-eth7")
	want("a new pod", opening...)
	l.located(event.Located{Uplink: "uplink"})
	l.wantClosed("roles known", "host-eth7")
	l.allConfigured(l.put(accessList("a", rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80)), lists))
	l.wantClosed("evaluated")
	l.writes()
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("restart of the agent")
	order = nil
	l.restartVPP()
	l.allConfigured(l.resync())
	l.wantClosed("restart of VPP")
	want("restart of VPP", opening...)
	l.allConfigured(l.del(kv.Key(lists)))
	l.wantClosed("no longer evaluated", "host-eth7")
	l.allConfigured(l.del(kv.Key(pod), kv.Key(arp)))
	if strings.Contains(l.sim.Dump(), "host-eth7") {
		t.Errorf("something of the pod stays:\n%s", l.sim.Dump())
	}
}

// TestOwnPodsStayOpen: without ClosePods nothing is closed.
func TestOwnPodsStayOpen(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	pod := packets(1450)
	pod.Name = kv.PodInterface("default/web", "1234")
	l.allConfigured(l.put(pod))
	l.wantClosed("not asked for")
}

// TestInvalidInterfaceIsNoPods: a value of another program that VPP cannot have is refused, and the agent continues.
func TestInvalidInterfaceIsNoPods(t *testing.T) {
	l := newLab(t, vppagent.Config{Descriptors: aclvalues.ClosePods(all.All())})
	for _, m := range []*interfaces.Interface{
		{Name: "bond", Type: interfaces.Interface_BOND_INTERFACE},
		{Name: kv.PodInterface("default/web", "1234"), Type: interfaces.Interface_AF_PACKET},
	} {
		if s := status(l.put(m), kv.Key(m)); s.State != event.Invalid {
			t.Errorf("%s: %+v", m.GetName(), s)
		}
	}
	l.allConfigured(l.put(packets(1450)))
}
