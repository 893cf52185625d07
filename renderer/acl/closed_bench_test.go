package acl

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// closedNode has pods whose one policy allows a set of members in both directions, at one port of TCP. The returned functions add a pod or
// remove it again, and add a member or remove it again.
func closedNode(pods, members int, sink *counter) (r *Renderer, pod, member func(n int)) {
	r = New(Config{}, sink)
	n := dataplane.Node{View4: dataplane.PreDNAT, View6: dataplane.PostDNAT, Interfaces: map[netip.Addr]string{}, Uplink: "uplink", Overlay: "overlay", Host: "host", Frontends: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	var all []string
	for i := range members {
		all = append(all, fmt.Sprintf("10.%d.%d.%d/32", 2+i/65536, i/256%256, i%256))
	}
	in, out := tcpFrom(0, false), tcpFrom(0, true)
	in.SrcNet, out.DstNet, in.SrcIpSetIds, out.DstIpSetIds = nil, nil, []string{"s:big"}, []string{"s:big"}
	r.OnUpdate(inSync())
	r.OnUpdate(setMessage("s:big", felix.IPSetUpdate_NET, all))
	r.OnUpdate(policyMessage(&felix.PolicyID{Tier: "default", Name: "p"}, &felix.Policy{InboundRules: []*felix.Rule{in}, OutboundRules: []*felix.Rule{out}}))
	t := &felix.TierInfo{Name: "default", IngressPolicies: []string{"p"}, EgressPolicies: []string{"p"}}
	put := func(i int) {
		a := netip.AddrFrom4([4]byte{10, 1, 1, byte(i)})
		n.Interfaces[a] = fmt.Sprint("tap", i)
		r.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: &felix.WorkloadEndpointUpdate{
			Id: podID(fmt.Sprint("p", i)), Endpoint: &felix.WorkloadEndpoint{State: "active", Ipv4Nets: []string{a.String() + "/32"}, Tiers: []*felix.TierInfo{t}},
		}}})
	}
	apply := func() {
		r.SetNode(n)
		for r.Apply() {
		}
	}
	for i := range pods {
		put(i)
	}
	apply()
	pod = func(k int) {
		n.Interfaces = copyOf(n.Interfaces)
		if k%2 == 0 {
			put(pods)
		} else {
			delete(n.Interfaces, netip.AddrFrom4([4]byte{10, 1, 1, byte(pods)}))
			r.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointRemove{WorkloadEndpointRemove: &felix.WorkloadEndpointRemove{Id: podID(fmt.Sprint("p", pods))}}})
		}
		apply()
	}
	member = func(k int) {
		d, m := &felix.IPSetDeltaUpdate{Id: "s:big"}, []string{fmt.Sprintf("10.200.0.%d/32", k/2%256)}
		if d.AddedMembers = m; k%2 == 1 {
			d.AddedMembers, d.RemovedMembers = nil, m
		}
		r.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}})
		for r.Apply() {
		}
	}
	return r, pod, member
}

func copyOf(m map[netip.Addr]string) map[netip.Addr]string {
	out := make(map[netip.Addr]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// A node with 100 pods that one policy closes in both directions: one more pod arrives or ends, or one member joins or leaves the policy's set.
func BenchmarkClosedPods(b *testing.B) {
	for _, members := range []int{10, 10000} {
		var sink counter
		_, pod, member := closedNode(100, members, &sink)
		first := sink
		for what, change := range map[string]func(int){"pod": pod, "member": member} {
			b.Run(fmt.Sprintf("members=%d/%s", members, what), func(b *testing.B) {
				sink = counter{}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					change(n)
					n++
				}
				if n%2 == 1 {
					change(n)
				}
				b.ReportMetric(float64(sink.rules)/float64(n), "rules/op")
				b.ReportMetric(float64(sink.values)/float64(n), "values/op")
				b.ReportMetric(float64(first.rules), "rules")
			})
		}
	}
}
