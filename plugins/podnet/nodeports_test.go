package podnet

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// lines are values as text, without the beginnings of keys.
func lines(values kv.Values) (out []string) {
	for _, key := range values.Keys() {
		out = append(out, kv.Format(key, values[key]))
	}
	return out
}

func TestFrontOfService(t *testing.T) {
	endpoint := func(ip string, local bool) *renderer.ServiceBackend {
		return &renderer.ServiceBackend{IP: net.ParseIP(ip), Port: 8080, Local: local}
	}
	node := renderer.NodeState{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}}
	for _, tc := range []struct {
		name   string
		change func(*renderer.ContivService)
		want   []string
	}{
		{"all clients, in the families that have endpoints", func(s *renderer.ContivService) {
			s.Backends["http"] = []*renderer.ServiceBackend{endpoint("10.1.2.2", false)}
		}, []string{`config/contiv/linux/v1/node-port/TCP/30080 {"port":30080,"ipv4":"ALL"}`}},
		{"Local: the node's own where none is here", func(s *renderer.ContivService) {
			s.TrafficPolicy = renderer.NodeLocal
			s.Backends["http"] = []*renderer.ServiceBackend{endpoint("10.1.2.2", false), endpoint("2001:db8::2", true)}
		}, []string{`config/contiv/linux/v1/node-port/TCP/30080 {"port":30080,"ipv4":"NODE","ipv6":"ALL"}`}},
		{"without endpoints the port is the node's", func(*renderer.ContivService) {}, nil},
		{"a port of another Service", func(s *renderer.ContivService) {
			s.Backends["http"] = []*renderer.ServiceBackend{endpoint("10.1.2.2", false)}
			s.Conflicts = map[renderer.Frontend]model.ServiceID{{Port: 30080, Protocol: renderer.TCP}: {Namespace: "a", Name: "a"}}
		}, nil},
		{"external addresses of the families of pods, but those of nodes", func(s *renderer.ContivService) {
			s.ExternalIPs = renderer.IPAddressesOf(netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("192.168.16.2"), netip.MustParseAddr("2001:db8::7"))
		}, []string{`config/linux/l3/v2/route/198.51.100.7/32/contiv-host {"outgoingInterface":"contiv-host","dstNetwork":"198.51.100.7/32","gwAddr":"169.254.1.1"}`}},
	} {
		svc := renderer.NewContivService()
		svc.Ports["http"] = &renderer.ServicePort{Protocol: renderer.TCP, Port: 80, NodePort: 30080}
		tc.change(svc)
		if diff := cmp.Diff(tc.want, lines(frontOf(svc, node, renderer.IPAddressesOf(netip.MustParseAddr("192.168.16.2"))))); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.name, diff)
		}
	}
}

func TestNodePortAddresses(t *testing.T) {
	addr := netip.MustParseAddr
	node := renderer.NodeState{
		IPs:         []netip.Addr{addr("192.168.16.1"), addr("192.168.17.1"), addr("192.168.16.1"), addr("192.168.18.1"), addr("2001:db8:16::1")},
		PodCIDRs:    []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")},
		NoNodePorts: []netip.Addr{addr("192.168.17.1")},
	}
	want := []string{
		`config/contiv/linux/v1/node-ports {"interface":"contiv-host","addresses":[{"nodeAddress":"192.168.16.1","standIn":"169.254.1.128","hostAddress":"10.1.1.1"},{"nodeAddress":"192.168.18.1","standIn":"169.254.1.129","hostAddress":"10.1.1.1"}],"returns":[{"hostAddress":"10.1.1.1","standIn":"169.254.1.10"}]}`,
		`config/linux/l3/v2/route/169.254.1.10/32/contiv-host {"outgoingInterface":"contiv-host","dstNetwork":"169.254.1.10/32","gwAddr":"169.254.1.1"}`,
		`config/linux/l3/v2/route/169.254.1.128/32/contiv-host {"outgoingInterface":"contiv-host","dstNetwork":"169.254.1.128/32","gwAddr":"169.254.1.1"}`,
		`config/linux/l3/v2/route/169.254.1.129/32/contiv-host {"outgoingInterface":"contiv-host","dstNetwork":"169.254.1.129/32","gwAddr":"169.254.1.1"}`,
	}
	if got := lines(nodePorts(node)); !slices.Equal(got, want) {
		t.Errorf("%s", cmp.Diff(want, got))
	}
}
