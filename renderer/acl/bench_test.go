package acl

import (
	"fmt"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// counter is a sink that counts.
type counter struct{ values, rules int }

func (c *counter) Set(_ string, values map[string]proto.Message, _ []model.Note) {
	for _, v := range values {
		c.values++
		if a, ok := v.(*vppacl.ACL); ok {
			c.rules += len(a.GetRules())
		}
	}
}

func tcpFrom(i int, egress bool) *felix.Rule {
	r := &felix.Rule{
		Action: "allow", Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Number{Number: 6}}, DstPorts: []*felix.PortRange{{First: 80, Last: 80}},
	}
	net := []string{fmt.Sprintf("10.%d.%d.%d/32", 2+i/65536, i/256%256, i%256)}
	if egress {
		r.DstNet = net
	} else {
		r.SrcNet = net
	}
	return r
}

// busyNode has pods with a separate policy each, with the given number of peers in each direction. The returned message has one
// policy again, with another rule for ingress, or egress.
func busyNode(view dataplane.View, pods, peers int, sink *counter) (*Renderer, func(pod, change int, egress bool) *felix.ToDataplane) {
	r := New(Config{}, sink)
	n := dataplane.Node{View4: view, View6: dataplane.PostDNAT, Interfaces: map[netip.Addr]string{}, Uplink: "uplink", Overlay: "overlay", Host: "host", Frontends: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	policy := func(pod, change int, egress bool) *felix.ToDataplane {
		p := &felix.Policy{}
		for i := range peers {
			p.InboundRules = append(p.InboundRules, tcpFrom(pod*peers+i, false))
			p.OutboundRules = append(p.OutboundRules, tcpFrom(pod*peers+i, true))
		}
		changed := p.InboundRules
		if egress {
			changed = p.OutboundRules
		}
		changed[peers/2].DstPorts[0].Last = int32(80 + change)
		return policyMessage(&felix.PolicyID{Tier: "default", Name: fmt.Sprint("p", pod)}, p)
	}
	r.OnUpdate(inSync())
	for pod := range pods {
		a := netip.AddrFrom4([4]byte{10, 1, 1, byte(pod)})
		n.Interfaces[a] = fmt.Sprint("tap", pod)
		name := fmt.Sprint("p", pod)
		r.OnUpdate(policy(pod, 0, false))
		r.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: &felix.WorkloadEndpointUpdate{
			Id: podID(name), Endpoint: &felix.WorkloadEndpoint{
				State: "active", Ipv4Nets: []string{a.String() + "/32"},
				Tiers: []*felix.TierInfo{{Name: "default", IngressPolicies: []string{name}, EgressPolicies: []string{name}}},
			},
		}}})
	}
	r.SetNode(n)
	for r.Apply() {
	}
	return r, policy
}

// A node with 110 pods, each with a policy of 300 peers in each direction; one rule changes. The message has all rules of the
// policy and shares nothing with the one before. It is made while the clock stands, because its sender makes it elsewhere.
func BenchmarkOneRule(b *testing.B) {
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		for _, egress := range []bool{false, true} {
			b.Run(view.String()+"/"+[]string{"ingress", "egress"}[match.InOut(egress)], func(b *testing.B) {
				var sink counter
				r, policy := busyNode(view, 110, 300, &sink)
				sink = counter{}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					n++
					b.StopTimer()
					m := policy(n%110, 1+n%50, egress)
					b.StartTimer()
					r.OnUpdate(m)
					for r.Apply() {
					}
				}
				b.ReportMetric(float64(sink.values)/float64(n), "values/op")
				b.ReportMetric(float64(sink.rules)/float64(n), "rules/op")
			})
		}
	}
}

// The first Apply of that node.
func BenchmarkWholeNode(b *testing.B) {
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		b.Run(view.String(), func(b *testing.B) {
			for b.Loop() {
				busyNode(view, 110, 300, &counter{})
			}
		})
	}
}

// bigSet has pods that share a policy of one set; delta adds one address, or removes it again.
func bigSet(view dataplane.View, pods, members int, egress bool, sink *counter) (r *Renderer, delta func(n int) *felix.ToDataplane) {
	r = New(Config{}, sink)
	n := dataplane.Node{View4: view, View6: dataplane.PostDNAT, Interfaces: map[netip.Addr]string{}, Uplink: "uplink", Overlay: "overlay", Frontends: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	var all []string
	for i := range members {
		all = append(all, fmt.Sprintf("10.%d.%d.%d/32", 2+i/65536, i/256%256, i%256))
	}
	rule := &felix.Rule{Action: "allow"}
	p, t := &felix.Policy{}, &felix.TierInfo{Name: "default"}
	if egress {
		rule.DstIpSetIds, p.OutboundRules, t.EgressPolicies = []string{"s:big"}, []*felix.Rule{rule}, []string{"p"}
	} else {
		rule.SrcIpSetIds, p.InboundRules, t.IngressPolicies = []string{"s:big"}, []*felix.Rule{rule}, []string{"p"}
	}
	r.OnUpdate(inSync())
	r.OnUpdate(setMessage("s:big", felix.IPSetUpdate_NET, all))
	r.OnUpdate(policyMessage(&felix.PolicyID{Tier: "default", Name: "p"}, p))
	open := []*felix.Rule{{Action: "allow"}}
	r.OnUpdate(profileMessage("open", &felix.Profile{InboundRules: open, OutboundRules: open}))
	for pod := range pods {
		a := netip.AddrFrom4([4]byte{10, 1, 1, byte(pod)})
		n.Interfaces[a] = fmt.Sprint("tap", pod)
		r.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: &felix.WorkloadEndpointUpdate{
			Id:       podID(fmt.Sprint("p", pod)),
			Endpoint: &felix.WorkloadEndpoint{State: "active", Ipv4Nets: []string{a.String() + "/32"}, ProfileIds: []string{"open"}, Tiers: []*felix.TierInfo{t}},
		}}})
	}
	r.SetNode(n)
	for r.Apply() {
	}
	return r, func(n int) *felix.ToDataplane {
		d := &felix.IPSetDeltaUpdate{Id: "s:big"}
		if member := []string{fmt.Sprintf("10.200.0.%d/32", n/2%256)}; n%2 == 0 {
			d.AddedMembers = member
		} else {
			d.RemovedMembers = member
		}
		return &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}}
	}
}

// One address joins or leaves a set of 10,000 that 100 pods of the node use.
func BenchmarkOneMember(b *testing.B) {
	for _, c := range []struct {
		name   string
		view   dataplane.View
		egress bool
		n      int
	}{{"ingress", dataplane.PreDNAT, false, 10000}, {"egress, post-dnat", dataplane.PostDNAT, true, 10000}, {"egress, pre-dnat", dataplane.PreDNAT, true, 10000}} {
		b.Run(c.name, func(b *testing.B) {
			var sink counter
			r, delta := bigSet(c.view, 100, c.n, c.egress, &sink)
			sink = counter{}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				r.OnUpdate(delta(n))
				for r.Apply() {
				}
				n++
			}
			b.ReportMetric(float64(sink.rules)/float64(n), "rules/op")
			b.ReportMetric(float64(sink.values)/float64(n), "values/op")
		})
	}
}
