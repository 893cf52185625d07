package service

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

func TestHealthCheckCountsReadyAddressesOfThisNode(t *testing.T) {
	spec := cluster("web", "10.96.0.10", func(s *model.Service) {
		s.ClusterIPs = addrs("10.96.0.10", "fd00:96::10")
		s.Ports = []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}, {Name: "dns", Protocol: model.UDP, Port: 53}}
		s.HealthCheckNodePort = 30201
	})
	ports := []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 53}}
	ep := func(addr, node string, ready bool) model.Endpoint {
		return model.Endpoint{Addr: addrs(addr)[0], NodeName: node, Ready: ready, Serving: true, Terminating: !ready}
	}
	parts := []*model.EndpointSlice{
		{ID: model.SliceID{Name: "a"}, Ports: ports, Endpoints: []model.Endpoint{
			ep("10.1.1.2", "node-1", true), ep("10.1.1.3", "node-1", false), ep("10.1.2.2", "node-2", true), ep("10.1.1.4", "node-1", true),
		}},
		{ID: model.SliceID{Name: "b"}, IPv6: true, Ports: ports, Endpoints: []model.Endpoint{ep("fd00:1::2", "node-1", true), ep("fd00:2::2", "", true)}},
	}
	env := surroundings{node: "node-1", isNode: renderer.NewIPAddresses().Contains}
	svc, _ := build(spec, parts, env, nil)
	if want := (renderer.HealthCheck{NodePort: 30201, Local4: 2, Local6: 1}); svc.HealthCheck != want {
		t.Errorf("health check %+v, want %+v", svc.HealthCheck, want)
	}
	spec.HealthCheckNodePort = 0
	if svc, _ = build(spec, parts, env, nil); svc.HealthCheck != (renderer.HealthCheck{}) {
		t.Errorf("nobody asks: %+v", svc.HealthCheck)
	}
}
