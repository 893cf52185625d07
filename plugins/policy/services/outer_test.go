package services

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer/adapter"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

func outerText(o dataplane.Outer) string {
	mark := ""
	if o.Hides {
		mark = "hides "
	}
	return fmt.Sprintf("%s%s/%d %v", mark, netip.AddrPortFrom(o.Addr, o.Port), o.Proto, o.Backends)
}

// outward returns a service at 10.96.0.1, 198.51.100.1:80 and node port 30080, with an endpoint on either node.
func outward(change ...func(*renderer.ContivService)) *renderer.ContivService {
	s := renderer.NewContivService()
	s.ID = model.ServiceID{Namespace: "prod", Name: "web"}
	s.ClusterIPs, s.ExternalIPs = renderer.IPAddressesOf(addr("10.96.0.1")), renderer.IPAddressesOf(addr("198.51.100.1"))
	s.Ports["http"] = &renderer.ServicePort{Protocol: renderer.TCP, Port: 80, NodePort: 30080}
	s.Backends["http"] = []*renderer.ServiceBackend{
		{IP: net.ParseIP("10.1.1.2"), Port: 8080, Local: true}, {IP: net.ParseIP("10.1.2.2"), Port: 8080}, {IP: net.ParseIP("fd00::2"), Port: 8080},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func TestOuter(t *testing.T) {
	all := "[10.1.1.2:8080 10.1.2.2:8080]"
	local := func(s *renderer.ContivService) { s.TrafficPolicy = renderer.NodeLocal }
	for _, c := range []struct {
		name     string
		loopback string
		svc      *renderer.ContivService
		want     []string
	}{
		{"policy Cluster hides, and leaves other nodes to themselves", "10.1.1.254", outward(), []string{
			"hides 192.168.16.1:30080/6 " + all, "hides 198.51.100.1:80/6 " + all,
		}},
		{"without a loopback nobody can be hidden", "", outward(), []string{"192.168.16.1:30080/6 " + all, "198.51.100.1:80/6 " + all}},
		{"policy Local keeps clients, and leaves other nodes to themselves", "10.1.1.254", outward(local), []string{
			"192.168.16.1:30080/6 [10.1.1.2:8080]", "198.51.100.1:80/6 [10.1.1.2:8080]",
		}},
		{"policy Local, nothing here", "10.1.1.254", outward(local, func(s *renderer.ContivService) { s.Backends["http"] = s.Backends["http"][1:] }), []string{
			"192.168.16.1:30080/6 [10.1.2.2:8080]", "198.51.100.1:80/6 [10.1.2.2:8080]",
		}},
		{"no endpoint leads nowhere", "10.1.1.254", outward(func(s *renderer.ContivService) { clear(s.Backends) }), nil},
		{"SCTP is not translated", "10.1.1.254", outward(func(s *renderer.ContivService) { s.Ports["http"].Protocol = renderer.SCTP }), nil},
		{"another service's frontends", "10.1.1.254", outward(func(s *renderer.ContivService) {
			s.Conflicts = map[renderer.Frontend]model.ServiceID{{Port: 30080, Protocol: renderer.TCP}: {Namespace: "a", Name: "a"}}
		}), []string{"hides 198.51.100.1:80/6 " + all}},
		{"an external address of another node", "10.1.1.254", outward(func(s *renderer.ContivService) {
			s.ExternalIPs = renderer.IPAddressesOf(addr("192.168.16.2"), addr("192.168.16.1"))
			s.Ports["http"].NodePort = 0
		}), []string{"hides 192.168.16.1:80/6 " + all}},
		{"cluster IPs only", "10.1.1.254", outward(func(s *renderer.ContivService) {
			s.ExternalIPs = renderer.NewIPAddresses()
			s.Ports["http"].NodePort = 0
		}), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := New()
			api := adapter.Listen(tr)
			state := renderer.NodeState{Name: "node-1", IPs: []netip.Addr{addr("192.168.16.1")}}
			if c.loopback != "" {
				state.Loopback = addr(c.loopback)
			}
			// In both orders: the nodes are known before the service, and after it.
			nodes := renderer.IPAddressesOf(addr("192.168.16.1"), addr("192.168.16.2"))
			err := errors.Join(api.AddService(c.svc), tr.UpdateNode(state), api.UpdateNodePortServices(nodes, nil))
			late := tr.outers()
			err = errors.Join(err, tr.UpdateNode(state), api.Resync(&renderer.ResyncEventData{NodeIPs: nodes, Services: []*renderer.ContivService{c.svc}}))
			for _, list := range [][]dataplane.Outer{late, tr.outers()} {
				var got []string
				for _, o := range list {
					got = append(got, outerText(o))
				}
				if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
					t.Errorf("%v -want +got\n%s", err, diff)
				}
			}
		})
	}
}

// An address without node ports has no outer frontend for them.
func TestOuterNodePortAddresses(t *testing.T) {
	tr := New()
	api := adapter.Listen(tr)
	state := renderer.NodeState{IPs: []netip.Addr{addr("192.168.16.1"), addr("192.168.17.1")}}
	err := errors.Join(api.AddService(outward()), tr.UpdateNode(state), api.UpdateNodePortServices(renderer.IPAddressesOf(state.IPs...), nil))
	if got := len(tr.outers()); got != 3 || err != nil {
		t.Errorf("%d outer addresses, %v; want two node ports and one external", got, err)
	}
	state.NoNodePorts = state.IPs[1:]
	err = tr.UpdateNode(state)
	for _, o := range tr.outers() {
		if o.Addr == state.IPs[1] {
			t.Errorf("node port at %s", o.Addr)
		}
	}
	if got := len(tr.outers()); got != 2 || err != nil {
		t.Errorf("%d outer addresses, %v; want one node port and one external", got, err)
	}
}

// A change that leaves the destinations of services as they are sends nothing.
func TestOuterChanges(t *testing.T) {
	tr := New()
	api := adapter.Listen(tr)
	_ = tr.UpdateNode(renderer.NodeState{IPs: []netip.Addr{addr("192.168.16.1")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
	old := outward()
	_ = api.AddService(old)
	first := tr.outers()
	for _, c := range []struct {
		name string
		call func() error
		want bool
	}{
		{"affinity", func() error { old.SessionAffinityTimeout = 5; return api.UpdateService(old, outward(), nil) }, false},
		{"a cluster IP only", func() error {
			s := outward(func(s *renderer.ContivService) {
				s.ID.Name, s.ExternalIPs, s.Ports["http"].NodePort = "other", renderer.NewIPAddresses(), 0
			})
			return api.AddService(s)
		}, false},
		{"an endpoint", func() error {
			return api.UpdateService(old, outward(func(s *renderer.ContivService) { s.Backends["http"] = s.Backends["http"][:1] }), nil)
		}, true},
		{"it goes", func() error { return api.DeleteService(old, nil) }, true},
	} {
		tr.changed = false
		err := c.call()
		if now := tr.outers(); err != nil || tr.changed != c.want || dataplane.SameOuter(first, now) == c.want {
			t.Errorf("%s: changed %v, now %v (%v)", c.name, tr.changed, now, err)
		}
	}
	if len(tr.exposed)+len(tr.outers()) > 0 {
		t.Errorf("left: %v", tr.exposed)
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
