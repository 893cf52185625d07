package cni_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

func put(obj model.Object) event.Change { return event.Change{Ref: obj.Ref(), Object: obj} }

func node(i int, ip string) *model.Node {
	return &model.Node{
		Name: fmt.Sprintf("node-%d", i), InternalIPs: []netip.Addr{netip.MustParseAddr(ip)},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", i))},
	}
}

func pod(name, node, ip string) *model.Pod {
	return &model.Pod{
		ID: model.PodID{Namespace: "default", Name: name}, NodeName: node, IPs: []netip.Addr{netip.MustParseAddr(ip)},
	}
}

func apply(t interface{ Fatal(...any) }, c *cni.CNI, changes ...event.Change) {
	if err := c.Apply(changes); err != nil {
		t.Fatal(err)
	}
}

func TestPlumbing(t *testing.T) {
	v := sim.New(sim.Config{})
	c := cni.New(v, "node-1")
	apply(t, c, put(node(1, "192.168.16.1")), put(node(2, "192.168.16.2")), put(pod("a", "node-1", "10.1.1.2")), put(pod("far", "node-2", "10.1.2.2")))
	hostNetwork := pod("h", "node-1", "192.168.16.1")
	hostNetwork.HostNetwork = true
	finished := pod("f", "node-1", "10.1.1.9")
	finished.Finished = true
	apply(t, c, put(hostNetwork), put(finished))
	for dst, want := range map[string]string{
		"10.1.1.2": "pod-default/a", "10.1.2.2": cni.Overlay, "192.168.16.2": cni.Overlay, "192.168.16.1": cni.Host,
		"8.8.8.8": cni.Uplink, "10.1.1.9": cni.Uplink,
	} {
		if got := leadsTo(v, dst); got != want {
			t.Errorf("%s leads to %q, want %q", dst, got, want)
		}
	}
	apply(t, c, event.Change{Ref: pod("a", "", "10.1.1.2").Ref()}, event.Change{Ref: model.Ref{Kind: model.KindNode, Name: "node-2"}}, put(node(1, "192.168.16.9")))
	for dst, want := range map[string]string{"10.1.1.2": cni.Uplink, "10.1.2.2": cni.Uplink, "192.168.16.9": cni.Host, "192.168.16.1": cni.Uplink} {
		if got := leadsTo(v, dst); got != want {
			t.Errorf("afterwards %s leads to %q, want %q", dst, got, want)
		}
	}
}

// TestDualStack: both addresses of a pod, both ranges and both addresses of a node.
func TestDualStack(t *testing.T) {
	v := sim.New(sim.Config{})
	c := cni.New(v, "node-1")
	both := func(obj model.Object, addr string, cidr string) model.Object {
		switch obj := obj.(type) {
		case *model.Pod:
			obj.IPs = append(obj.IPs, netip.MustParseAddr(addr))
		case *model.Node:
			obj.InternalIPs = append(obj.InternalIPs, netip.MustParseAddr(addr))
			obj.PodCIDRs = append(obj.PodCIDRs, netip.MustParsePrefix(cidr))
		}
		return obj
	}
	apply(t, c, put(both(node(1, "192.168.16.1"), "fd00:16::1", "fd00:1:1::/64")), put(both(node(2, "192.168.16.2"), "fd00:16::2", "fd00:1:2::/64")),
		put(both(pod("a", "node-1", "10.1.1.2"), "fd00:1:1::2", "")), put(pod("six", "node-1", "fd00:1:1::6")))
	for dst, want := range map[string]string{
		"10.1.1.2": "pod-default/a", "fd00:1:1::2": "pod-default/a", "fd00:1:1::6": "pod-default/six", "fd00:1:2::9": cni.Overlay,
		"fd00:16::2": cni.Overlay, "fd00:16::1": cni.Host, "2001:db8::1": cni.Uplink,
	} {
		if got := leadsTo(v, dst); got != want {
			t.Errorf("%s leads to %q, want %q", dst, got, want)
		}
	}
	apply(t, c, event.Change{Ref: pod("a", "", "10.1.1.2").Ref()})
	if got := leadsTo(v, "fd00:1:1::2"); got != cni.Uplink {
		t.Errorf("without the pod its IPv6 address leads to %q", got)
	}
}

// leadsTo returns the interface by which a packet from outside leaves.
func leadsTo(v *sim.VPP, dst string) string {
	src := netip.MustParseAddr("198.51.100.7")
	if strings.Contains(dst, ":") {
		src = netip.MustParseAddr("2001:db8::7")
	}
	fate := v.Send(cni.Uplink, sim.Packet{Src: src, Dst: netip.MustParseAddr(dst), Proto: model.UDP, SrcPort: 1, DstPort: 2})
	if len(fate.Out) != 1 {
		return ""
	}
	return fate.Out[0].Interface
}

func TestAnAddressGoesToTheNextPodThatHasIt(t *testing.T) {
	v := sim.New(sim.Config{})
	c := cni.New(v, "node-1")
	apply(t, c, put(pod("b", "node-1", "10.1.1.2")), put(pod("a", "node-1", "10.1.1.2")))
	if got := leadsTo(v, "10.1.1.2"); got != "pod-default/a" {
		t.Errorf("two pods: %s", got)
	}
	done := pod("a", "node-1", "10.1.1.2")
	done.Finished = true
	apply(t, c, put(done))
	if got := leadsTo(v, "10.1.1.2"); got != "pod-default/b" {
		t.Errorf("after the first finished: %s", got)
	}
}

func TestPodInterfacesDiffer(t *testing.T) {
	long := strings.Repeat("x", 200)
	seen := map[string]model.PodID{}
	for _, id := range []model.PodID{
		{Namespace: "a-b", Name: "c"}, {Namespace: "a", Name: "b-c"}, {Namespace: "a", Name: long + "1"}, {Namespace: "a", Name: long + "2"},
	} {
		name := cni.PodInterface(id)
		if other, taken := seen[name]; taken || len(name) > 63 {
			t.Errorf("%v: interface %s (%d bytes), as %v", id, name, len(name), other)
		}
		seen[name] = id
	}
}

// TestPathIndependence: the same objects make the same VPP, whatever objects existed in between.
func TestPathIndependence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		final := map[model.Ref]model.Object{}
		v := sim.New(sim.Config{})
		c := cni.New(v, "node-1")
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			i := rapid.IntRange(1, 3).Draw(t, "which")
			var obj model.Object
			if rapid.Bool().Draw(t, "node") {
				obj = node(i, fmt.Sprintf("192.168.16.%d", rapid.IntRange(1, 4).Draw(t, "ip")))
			} else {
				p := pod(fmt.Sprint(i), fmt.Sprintf("node-%d", rapid.IntRange(1, 2).Draw(t, "on")), fmt.Sprintf("10.1.1.%d", rapid.IntRange(2, 4).Draw(t, "ip")))
				p.Finished = rapid.Bool().Draw(t, "finished")
				obj = p
			}
			if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				delete(final, obj.Ref())
				apply(t, c, event.Change{Ref: obj.Ref()})
				continue
			}
			final[obj.Ref()] = obj
			apply(t, c, put(obj))
		}
		fresh := sim.New(sim.Config{})
		once := cni.New(fresh, "node-1")
		for _, obj := range final {
			apply(t, once, put(obj))
		}
		if diff := cmp.Diff(fresh.Dump(), v.Dump()); diff != "" {
			t.Errorf("VPP depends on the way there (-fresh +grown):\n%s", diff)
		}
	})
}
