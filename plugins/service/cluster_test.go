package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

func reasons(notes []model.Note) []string {
	var out []string
	for _, n := range notes {
		out = append(out, n.Ref.String()+": "+n.Reason)
	}
	return out
}

func withExternal(ips ...string) func(*model.Service) {
	return func(s *model.Service) { s.ExternalIPs = addrs(ips...) }
}

func withNodePort(port uint16) func(*model.Service) {
	return func(s *model.Service) { s.Type, s.Ports[0].NodePort = model.NodePort, port }
}

func conflictsOf(r *recorder, name string) string {
	svc := r.services[model.ServiceID{Namespace: "default", Name: name}]
	var out []string
	for _, f := range slices.SortedFunc(maps.Keys(svc.Conflicts), renderer.Frontend.Compare) {
		out = append(out, f.String()+" of "+svc.Conflicts[f].Name)
	}
	return fmt.Sprint(out)
}

func TestSharedFrontendGoesToTheFirstByName(t *testing.T) {
	p, r := newTest(t)
	apply(p, cluster("b", "10.96.0.2", withExternal("203.0.113.7")))
	_ = p.Flush()
	if got := conflictsOf(r, "b"); got != "[]" {
		t.Errorf("alone, b has conflicts %s", got)
	}
	a := cluster("a", "10.96.0.1", withExternal("203.0.113.7"))
	apply(p, a)
	r.take()
	flush(t, p, r, "add a", "update b others=a")
	if got := conflictsOf(r, "a") + conflictsOf(r, "b"); got != "[][203.0.113.7:80/TCP of a]" {
		t.Errorf("conflicts %s", got)
	}
	want := []string{
		"Node node-1: there is no such Node: its addresses and pod CIDRs are not known",
		"Service default/b: 203.0.113.7:80/TCP is not served: it belongs to Service default/a",
	}
	if diff := cmp.Diff(want, reasons(p.Notes())); diff != "" {
		t.Errorf("notes -want +got\n%s", diff)
	}
	remove(p, a)
	flush(t, p, r, "delete a others=b", "update b others=")
	if got := conflictsOf(r, "b"); got != "[]" {
		t.Errorf("the winner is gone, b still has conflicts %s", got)
	}
}

// A node's address belongs to the node, as soon as the node has it.
func TestNodePortMeetsExternalIP(t *testing.T) {
	p, r := newTest(t)
	apply(p, node(1, "192.168.16.1"), cluster("b", "10.96.0.2", withNodePort(80)), cluster("a", "10.96.0.1", withExternal("192.168.16.2")))
	_ = p.Flush()
	if got := servedOf(r, "a") + conflictsOf(r, "b"); got != "[10.96.0.1][192.168.16.2][][]" {
		t.Errorf("before 192.168.16.2 is a node: %s", got)
	}
	r.take()
	apply(p, node(2, "192.168.16.2"))
	flush(t, p, r, "node", "update a others=b", "node-ips [192.168.16.1 192.168.16.2] services=b")
	if got := servedOf(r, "a") + conflictsOf(r, "b"); got != "[10.96.0.1][][][]" {
		t.Errorf("192.168.16.2 is a node: %s", got)
	}
	apply(p, cluster("0", "10.96.0.3", withNodePort(80)))
	_ = p.Flush()
	if got := conflictsOf(r, "0") + conflictsOf(r, "a") + conflictsOf(r, "b"); got != "[][][node:80/TCP of 0]" {
		t.Errorf("conflicts %s", got)
	}
	remove(p, node(2, "192.168.16.2"))
	_ = p.Flush()
	if got := servedOf(r, "a"); got != "[10.96.0.1][192.168.16.2][]" {
		t.Errorf("192.168.16.2 is no node any more: %s", got)
	}
}

func TestSameServiceIsNoConflict(t *testing.T) {
	p, r := newTest(t)
	apply(p, node(1, "192.168.16.1"), cluster("a", "10.96.0.1", withNodePort(80), withExternal("192.168.16.1", "10.96.0.1")))
	_ = p.Flush()
	if got := conflictsOf(r, "a"); got != "[]" {
		t.Errorf("conflicts with itself: %s", got)
	}
}

func TestLoopbackIsFree(t *testing.T) {
	p, r := newTest(t)
	check := func(want string, notes ...string) {
		t.Helper()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := r.node.Loopback.String(); got != want {
			t.Errorf("loopback %s, want %s", got, want)
		}
		if diff := cmp.Diff(notes, reasons(p.Notes())); diff != "" {
			t.Errorf("notes -want +got\n%s", diff)
		}
	}
	apply(p, node(1, "192.168.16.1"))
	check("10.1.1.254")
	apply(p, pod("a", "10.1.1.254"))
	check("10.1.1.253", "Node node-1: NAT loopback is 10.1.1.253, because 10.1.1.254 is the address of Pod default/a")
	apply(p, slice("x", ep("10.1.1.253")))
	check("10.1.1.252", "Node node-1: NAT loopback is 10.1.1.252, because 10.1.1.254 is the address of Pod default/a")
	done := pod("a", "10.1.1.254")
	done.Finished = true
	apply(p, done)
	check("10.1.1.254")
	remove(p, slice("x"))
	tiny := node(1, "192.168.16.1")
	tiny.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("10.9.9.0/30")}
	apply(p, tiny, pod("b", "10.9.9.1"), pod("c", "10.9.9.2"))
	check("invalid IP", "Node node-1: there is no NAT loopback: pod CIDR 10.9.9.0/30 has no free address")
	tiny = node(1, "192.168.16.1")
	tiny.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.9.9.9/32")}
	apply(p, tiny)
	check("invalid IP", "Node node-1: there is no NAT loopback: pod CIDR 10.9.9.9/32 has no free address")
}

func TestLoopbackConfigured(t *testing.T) {
	r := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
	p := New(Config{NodeName: "node-1", Loopback: addr("10.2.1.254")}, r)
	apply(p, node(1, "192.168.16.1"), pod("a", "10.2.1.254"))
	_ = p.Flush()
	want := []string{"Node node-1: NAT loopback 10.2.1.254 is configured, but it is the address of Pod default/a"}
	if got := reasons(p.Notes()); r.node.Loopback != addr("10.2.1.254") || !slices.Equal(got, want) {
		t.Errorf("loopback %s, notes %v", r.node.Loopback, got)
	}
}

func TestInterfacesFollowState(t *testing.T) {
	p, r := newTest(t)
	web := slice("a", ep("10.1.1.2"))
	apply(p, node(1, "192.168.16.1"), node(2, "192.168.16.2"), pod("web", "10.1.1.2"), pod("client", "10.1.1.3"), pod("far", "10.1.2.2"),
		cluster("a", "10.96.0.1"), web)
	hostPod := pod("host", "192.168.16.1")
	hostPod.NodeName, hostPod.HostNetwork = "node-1", true
	apply(p, hostPod)
	ask := p.Locate(time.Time{})
	wantAsk := &event.Locate{
		Pods:    map[netip.Addr]string{addr("10.1.1.2"): "default/web", addr("10.1.1.3"): "default/client"},
		NodeIPs: addrs("192.168.16.1"), Remote: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")},
	}
	if diff := cmp.Diff(wantAsk, ask, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("asked -want +got\n%s", diff)
	}
	p.Located(&event.Located{
		Pods:   map[netip.Addr]string{addr("10.1.1.2"): "tap1", addr("10.1.1.3"): "tap2", addr("10.1.1.9"): "tap9"},
		Uplink: "eth0", Overlay: "vxlan0", Host: "tap0", UplinkIPs: []netip.Prefix{netip.MustParsePrefix("192.168.16.5/24")},
		HostIPs: addrs("10.1.1.2", "169.254.1.2", "192.168.16.1", "192.168.16.5"), // a pod's, the host link's, the node's, the uplink's
	})
	_ = p.Flush()
	if want := addrs("169.254.1.2"); !slices.Equal(r.node.HostIPs, want) {
		t.Errorf("addresses of the host link %v, not %v", r.node.HostIPs, want)
	}
	check := func(front, back string) {
		t.Helper()
		if got := r.front.String() + r.back.String(); got != front+back {
			t.Errorf("interfaces %s, want %s", got, front+back)
		}
	}
	check("[eth0 tap0 tap1 tap2 vxlan0]", "[tap0 tap1 vxlan0]")
	if n := r.node; n.Uplink != "eth0" || n.Overlay != "vxlan0" || n.Host != "tap0" || len(n.UplinkIPs) != 1 {
		t.Errorf("node state %+v", n)
	}
	remove(p, cluster("a", "10.96.0.1")) // no service, no backend
	_ = p.Flush()
	check("[eth0 tap0 tap1 tap2 vxlan0]", "[tap0 vxlan0]")
	// A pod of the same name is created elsewhere and serves again: no stale count remains.
	apply(p, cluster("a", "10.96.0.1"))
	remove(p, pod("web", "10.1.1.2"))
	_ = p.Flush()
	check("[eth0 tap0 tap2 vxlan0]", "[tap0 vxlan0]")
	apply(p, pod("web", "10.1.1.2"))
	_ = p.Flush()
	check("[eth0 tap0 tap1 tap2 vxlan0]", "[tap0 tap1 vxlan0]")
	// The slice, unchanged but for its label, now belongs to a service that does not exist.
	moved := *web
	moved.Service.Name = "nobody"
	apply(p, &moved)
	_ = p.Flush()
	check("[eth0 tap0 tap1 tap2 vxlan0]", "[tap0 vxlan0]")
	apply(p, web)
	_ = p.Flush()
	check("[eth0 tap0 tap1 tap2 vxlan0]", "[tap0 tap1 vxlan0]")
	// Without an overlay, other nodes are behind the uplink.
	p.Located(&event.Located{Uplink: "eth0", Overlay: "eth0", Pods: map[netip.Addr]string{addr("10.1.1.2"): "tap1"}})
	_ = p.Flush()
	check("[eth0 tap1]", "[eth0 tap1]")
	if r.node.Overlay != "" {
		t.Errorf("overlay %q is not apart from the uplink", r.node.Overlay)
	}
	want := []string{"Pod default/client: no interface of VPP leads to 10.1.1.3: it is not a client of services"}
	if diff := cmp.Diff(want, reasons(p.Notes())); diff != "" {
		t.Errorf("notes -want +got\n%s", diff)
	}
}

func TestOverrideWins(t *testing.T) {
	r := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
	p := New(Config{NodeName: "node-1", Override: event.Located{Uplink: "wan", Overlay: "lan", Host: "kernel"}}, r)
	if ask := p.Locate(time.Time{}); ask.Override.Uplink != "wan" {
		t.Errorf("the question does not carry what is known: %+v", ask)
	}
	p.Located(&event.Located{Uplink: "eth0"})
	_ = p.Flush()
	if got := r.front.String() + r.node.Uplink; got != "[kernel lan wan]wan" {
		t.Errorf("interfaces %s", got)
	}
}

func TestLocateAsksAgainWithGrowingPauses(t *testing.T) {
	p, r := newTest(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	apply(p, node(1, "192.168.16.1"), pod("a", "10.1.1.2"))
	var asked []int
	answer := &event.Located{Uplink: "eth0"} // the pod does not exist yet
	for s := range 40 {
		if p.Locate(start.Add(time.Duration(s)*time.Second)) != nil {
			asked = append(asked, s)
			if s > 20 {
				answer.Pods = map[netip.Addr]string{addr("10.1.1.2"): "tap1"}
			}
			p.Located(answer)
		}
		_ = p.Flush()
	}
	if !slices.Equal(asked, []int{0, 2, 4, 8, 16, 32}) {
		t.Errorf("asked at %v", asked)
	}
	if r.front.String() != "[eth0 tap1]" {
		t.Errorf("interfaces %s", r.front)
	}
	apply(p, pod("b", "10.1.1.3"))
	if ask := p.Locate(start.Add(41 * time.Second)); ask == nil || len(ask.Pods) != 2 {
		t.Errorf("a new pod is not looked up at once: %+v", ask)
	}
	if p.Locate(start.Add(41*time.Second)) != nil {
		t.Error("asked twice at once")
	}
	p.Located(&event.Located{Uplink: "eth0", Pods: map[netip.Addr]string{addr("10.1.1.2"): "tap1", addr("10.1.1.3"): "tap2"}})
	_ = p.Flush()
	_ = p.Locate(start.Add(100 * time.Second)) // nothing is missing
	p.Located(&event.Located{Uplink: "eth0"})  // VPP lost them
	_ = p.Flush()
	_ = p.Locate(start.Add(200 * time.Second))
	if p.Locate(start.Add(201*time.Second)) == nil {
		t.Error("the pause did not start anew")
	}
}

// TestLocateAsksForOverlayAgain: routes to other nodes' pods that a CNI adds later are found without any other change.
func TestLocateAsksForOverlayAgain(t *testing.T) {
	p, r := newTest(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	apply(p, node(1, "192.168.16.1"))
	_ = p.Locate(start)
	p.Located(&event.Located{Uplink: "eth0", Overlay: "eth0", NoOverlay: true})
	_ = p.Flush()
	_ = p.Locate(start) // the pause begins
	if p.Locate(start.Add(firstRetry)) == nil {
		t.Fatal("the overlay is not asked for again")
	}
	p.Located(&event.Located{Uplink: "eth0", Overlay: "vxlan0"})
	_ = p.Flush()
	if r.front.String() != "[eth0 vxlan0]" {
		t.Errorf("interfaces %s", r.front)
	}
	for s := range 100 {
		if p.Locate(start.Add(firstRetry+time.Duration(s)*time.Second)) != nil {
			t.Fatal("asked again though nothing is missing")
		}
	}
}

// TestUplinkOfTheKernel: where the outside is behind the host link, no uplink is missing: nothing is looked up again, and no remark says so.
func TestUplinkOfTheKernel(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, byHost := range []bool{true, false} {
		p, r := newTest(t)
		apply(p, node(1, "192.168.16.1"))
		_ = p.Locate(start)
		p.Located(&event.Located{Host: "host", HostIPs: addrs("10.1.1.1"), ByHost: byHost})
		_ = p.Flush()
		_ = p.Locate(start) // a pause would begin
		again, notes := p.Locate(start.Add(firstRetry)) != nil, len(reasons(p.Notes()))
		if r.node.ByHost != byHost || again == byHost || (notes == 0) != byHost {
			t.Errorf("by the host link %v: asked again %v, %v, node %+v", byHost, again, reasons(p.Notes()), r.node)
		}
	}
}

func TestServiceCIDRs(t *testing.T) {
	r := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
	p := New(Config{NodeName: "node-1", ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.98.0.0/16")}}, r)
	cidr := &model.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.98.0.0/16"), netip.MustParsePrefix("10.96.0.0/16")}}
	apply(p, cidr)
	_ = p.Flush()
	if got := fmt.Sprint(r.node.ServiceCIDRs); got != "[10.96.0.0/16 10.98.0.0/16]" {
		t.Errorf("service CIDRs %s", got)
	}
	remove(p, cidr)
	_ = p.Flush()
	if got := fmt.Sprint(r.node.ServiceCIDRs); got != "[10.98.0.0/16]" {
		t.Errorf("service CIDRs %s", got)
	}
}

func TestZoneOfThisNode(t *testing.T) {
	p, r := newTest(t)
	apply(p, cluster("a", "10.96.0.1"), slice("a", marked("10.1.1.2 @a", "10.1.2.2 @b")...))
	id := model.ServiceID{Namespace: "default", Name: "a"}
	for _, zone := range []struct{ name, want string }{
		{"", "10.1.1.2:8080 local, 10.1.2.2:8080"}, {"a", "10.1.1.2:8080 local"}, {"b", "10.1.2.2:8080"},
	} {
		n := node(1, "192.168.16.1")
		n.Zone = zone.name
		apply(p, n)
		_ = p.Flush()
		if got := text(r.services[id].Backends["http"]); got != zone.want {
			t.Errorf("zone %q: %s, want %s", zone.name, got, zone.want)
		}
	}
}

func TestNodeAddressMakesHostNetwork(t *testing.T) {
	p, r := newTest(t)
	apply(p, cluster("a", "10.96.0.1"), slice("a", ep("192.168.16.9")))
	_ = p.Flush()
	r.take()
	apply(p, node(9, "192.168.16.9"))
	flush(t, p, r, "node", "update a others=", "node-ips [192.168.16.9] services=")
	if got := text(r.services[model.ServiceID{Namespace: "default", Name: "a"}].Backends["http"]); got != "192.168.16.9:8080 host-network" {
		t.Errorf("backends %s", got)
	}
}

func TestSliceMovesToAnotherService(t *testing.T) {
	p, r := newTest(t)
	s := slice("a", ep("10.1.1.2"))
	apply(p, cluster("a", "10.96.0.1"), cluster("b", "10.96.0.2"), s)
	_ = p.Flush()
	r.take()
	moved := *s
	moved.Service.Name = "b"
	apply(p, &moved)
	flush(t, p, r, "update a others=b", "update b others=a")
	orphan := moved
	orphan.Service = model.ServiceID{}
	apply(p, &orphan)
	flush(t, p, r, "update b others=a")
}
