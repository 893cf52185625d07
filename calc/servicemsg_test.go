package calc_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Services and the BGP configuration affect nothing here; each change is sent once.
func TestServicesAndBGPAreSentOnce(t *testing.T) {
	id := model.ServiceID{Namespace: "prod", Name: "web"}
	web := model.Service{
		ID: id, Type: model.LoadBalancer, ClusterIPs: addrList("10.96.0.10", "fd00::10"), ExternalIPs: addrList("192.0.2.1"),
		LoadBalancerIPs: []model.LoadBalancerIP{{Addr: addrList("198.51.100.7")[0]}, {Addr: addrList("198.51.100.8")[0]}},
		Ports:           []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30080}, {Protocol: model.SCTP, Port: 81}},
	}
	local := web
	local.InternalTrafficPolicy = model.PolicyLocal // not part of the message
	headless := model.Service{ID: id, Headless: true}
	g, m := calc.New(calc.Config{Node: self}), mirror.New()
	g.InSync()
	m.Apply(g.Flush(), true)
	const webText = `Service prod/web => name:"web" namespace:"prod" type:"LoadBalancer" cluster_ips:"10.96.0.10" cluster_ips:"fd00::10" ` +
		`loadbalancer_ip:"198.51.100.7" external_ips:"192.0.2.1" ` +
		`ports:{Protocol:"TCP" Port:80 NodePort:30080} ports:{Protocol:"SCTP" Port:81}`
	const headlessText = `Service prod/web => name:"web" namespace:"prod" type:"ClusterIP" cluster_ips:"None"`
	const bgpText = `GlobalBGPConfig => service_cluster_cidrs:"10.96.0.0/12" local_workload_peering_ip_v4:"169.254.1.1"`
	bgp := &model.BGPConfig{
		ServiceClusterIPs: prefixList("10.96.0.0/12"), WorkloadPeering4: netip.MustParseAddr("169.254.1.1"),
	}
	for _, c := range []struct {
		name     string
		do       func()
		messages int
		want     []string
	}{
		{"removing a configuration that was never put", func() { g.SetBGPConfig(nil) }, 0, nil},
		{"service", func() { g.SetService(id, &web) }, 1, []string{webText}},
		{"a change of a field that is not sent", func() { g.SetService(id, &local) }, 0, []string{webText}},
		{"headless", func() { g.SetService(id, &headless) }, 1, []string{headlessText}},
		{"bgp", func() { g.SetBGPConfig(bgp) }, 1, []string{bgpText, headlessText}},
		{"bgp again", func() { g.SetBGPConfig(bgp) }, 0, []string{bgpText, headlessText}},
		{"put and removed before a flush", func() {
			g.SetService(model.ServiceID{Name: "x"}, &web)
			g.SetService(model.ServiceID{Name: "x"}, nil)
		}, 0, []string{bgpText, headlessText}},
		{"removed", func() { g.SetService(id, nil); g.SetBGPConfig(nil) }, 2, []string{"GlobalBGPConfig =>"}},
		{"removed twice", func() { g.SetService(id, nil); g.SetBGPConfig(nil) }, 0, []string{"GlobalBGPConfig =>"}},
	} {
		c.do()
		stream := g.Flush()
		m.Apply(stream, true)
		m.Check(t, c.name)
		got := slices.DeleteFunc(spaced(m.Dump()), func(s string) bool { return s == "Config =>" || s == "Encapsulation =>" })
		if diff := cmp.Diff(c.want, got, cmp.Transformer("nil", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if len(stream) != c.messages {
			t.Errorf("%s: %d messages, want %d: %v", c.name, len(stream), c.messages, stream)
		}
	}
}

func TestQoS(t *testing.T) {
	limits := func(n int64) model.RateLimits {
		return model.RateLimits{
			Bandwidth: n, Burst: n + 1, PeakRate: n + 2, MinBurst: n + 3, PacketRate: n + 4, PacketBurst: n + 5, MaxConnections: n + 6,
		}
	}
	for name, c := range map[string]struct {
		qos    *model.QoS
		labels map[string]string
		want   *felix.WorkloadEndpoint
	}{
		"none": {nil, nil, &felix.WorkloadEndpoint{}},
		"all": {&model.QoS{Ingress: limits(10), Egress: limits(20), DSCP: 46, HasDSCP: true}, nil, &felix.WorkloadEndpoint{
			QosControls: &felix.QoSControls{
				IngressBandwidth: 10, IngressBurst: 11, IngressPeakrate: 12, IngressMinburst: 13, IngressPacketRate: 14,
				IngressPacketBurst: 15, IngressMaxConnections: 16, EgressBandwidth: 20, EgressBurst: 21, EgressPeakrate: 22,
				EgressMinburst: 23, EgressPacketRate: 24, EgressPacketBurst: 25, EgressMaxConnections: 26,
			},
			QosPolicies: []*felix.QoSPolicy{{Dscp: 46}}, SkipRedir: &felix.WorkloadBpfSkipRedir{Egress: true, Ingress: true},
		}},
		"a mark of zero": {&model.QoS{HasDSCP: true}, nil, &felix.WorkloadEndpoint{
			QosControls: &felix.QoSControls{}, QosPolicies: []*felix.QoSPolicy{{}},
		}},
		"packets only": {&model.QoS{Egress: model.RateLimits{PacketRate: 1}}, nil, &felix.WorkloadEndpoint{
			QosControls: &felix.QoSControls{EgressPacketRate: 1}, SkipRedir: &felix.WorkloadBpfSkipRedir{Egress: true},
		}},
		"virtual machine": {nil, map[string]string{"kubevirt.io": "virt-launcher"}, &felix.WorkloadEndpoint{
			SkipRedir: &felix.WorkloadBpfSkipRedir{Ingress: true},
		}},
	} {
		g := calc.New(calc.Config{Node: self})
		g.SetWorkload(model.WorkloadID{Node: self}, &model.WorkloadEndpoint{QoS: c.qos, Labels: c.labels})
		g.SetHostEndpoint(model.HostEndpointID{Node: self}, &model.HostEndpoint{QoS: c.qos})
		g.InSync()
		for _, msg := range g.Flush() {
			if u := msg.GetWorkloadEndpointUpdate(); u != nil {
				if diff := cmp.Diff(c.want, u.Endpoint, protocmp.Transform()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			if u := msg.GetHostEndpointUpdate(); u != nil {
				if diff := cmp.Diff(c.want.QosPolicies, u.Endpoint.QosPolicies, protocmp.Transform()); diff != "" {
					t.Errorf("%s, host endpoint (-want +got):\n%s", name, diff)
				}
			}
		}
	}
}
