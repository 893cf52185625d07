package renderer_test

import (
	"fmt"
	"net/netip"
	"sort"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// table is a renderer of another program: it knows only the seven methods and their original types. It keeps a table of frontends
// and endpoints.
type table struct {
	nodeIPs *renderer.IPAddresses
	rows    map[string][]string // by service
}

func (t *table) AddService(svc *renderer.ContivService) error {
	var rows []string
	for name, port := range svc.Ports {
		for _, ip := range svc.ClusterIPs.List() {
			rows = append(rows, row(ip.String(), port.Port, port.Protocol, svc.Backends[name], false))
		}
		local := svc.TrafficPolicy == renderer.NodeLocal
		for _, ip := range svc.ExternalIPs.List() {
			rows = append(rows, row(ip.String(), port.Port, port.Protocol, svc.Backends[name], local))
		}
		if svc.HasNodePort() && port.NodePort != 0 {
			for _, ip := range t.nodeIPs.List() {
				rows = append(rows, row(ip.String(), port.NodePort, port.Protocol, svc.Backends[name], local))
			}
		}
	}
	sort.Strings(rows)
	t.rows[svc.ID.String()] = rows
	return nil
}

func row(ip string, port uint16, protocol renderer.ProtocolType, backends []*renderer.ServiceBackend, local bool) string {
	line := fmt.Sprintf("%s %s:%d ->", protocol, ip, port)
	for _, b := range backends {
		if b.Local || !local {
			line += fmt.Sprintf(" %s:%d", b.IP, b.Port)
		}
	}
	return line
}

func (t *table) UpdateService(_, svc *renderer.ContivService, _ []*renderer.ContivService) error {
	return t.AddService(svc)
}

func (t *table) DeleteService(svc *renderer.ContivService, _ []*renderer.ContivService) error {
	delete(t.rows, svc.ID.String())
	return nil
}

func (t *table) UpdateNodePortServices(nodeIPs *renderer.IPAddresses, npServices []*renderer.ContivService) error {
	t.nodeIPs = nodeIPs.Copy()
	for _, svc := range npServices {
		if err := t.AddService(svc); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) UpdateLocalFrontendIfs(_, _ renderer.Interfaces) error { return nil }

func (t *table) UpdateLocalBackendIfs(_, _ renderer.Interfaces) error { return nil }

func (t *table) Resync(ev *renderer.ResyncEventData) error {
	t.nodeIPs, t.rows = ev.NodeIPs, map[string][]string{}
	for _, svc := range ev.Services {
		if err := t.AddService(svc); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) print(when string) {
	fmt.Println(when + ":")
	var names []string
	for name := range t.rows {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, line := range t.rows[name] {
			fmt.Println(" ", name, line)
		}
	}
}

// A renderer that was written for the original API runs under the processor, beside the built-in ones.
func ExampleServiceRendererAPI() {
	t := &table{}
	var api renderer.ServiceRendererAPI = t
	p := service.New(service.Config{NodeName: "node-1"}, api)

	ip := netip.MustParseAddr
	web := &model.Service{
		ID: model.ServiceID{Namespace: "default", Name: "web"}, Type: model.NodePort,
		ClusterIPs: []netip.Addr{ip("10.96.0.10")}, ExternalTrafficPolicy: model.PolicyLocal,
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30080}},
	}
	slice := &model.EndpointSlice{
		ID: model.SliceID{Namespace: "default", Name: "web-1"}, Service: web.ID,
		Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		Endpoints: []model.Endpoint{
			{Addr: ip("10.1.1.2"), NodeName: "node-1", Ready: true, Serving: true},
			{Addr: ip("10.1.2.2"), NodeName: "node-2", Ready: true, Serving: true},
		},
	}
	node := &model.Node{Name: "node-1", InternalIPs: []netip.Addr{ip("192.168.16.1")}}
	put := func(obj model.Object) { p.Apply(event.Change{Ref: obj.Ref(), Object: obj}) }
	step := func(when string, call func() error) {
		if err := call(); err != nil {
			fmt.Println(err)
		}
		t.print(when)
	}

	put(web)
	put(slice)
	step("start", p.Resync)
	put(node)
	step("a node", p.Flush)
	p.Apply(event.Change{Ref: slice.Ref()})
	step("no endpoints", p.Flush)
	p.Apply(event.Change{Ref: web.Ref()})
	step("no service", p.Flush)
	// Output:
	// start:
	//   default/web TCP 10.96.0.10:80 -> 10.1.1.2:8080 10.1.2.2:8080
	// a node:
	//   default/web TCP 10.96.0.10:80 -> 10.1.1.2:8080 10.1.2.2:8080
	//   default/web TCP 192.168.16.1:30080 -> 10.1.1.2:8080
	// no endpoints:
	//   default/web TCP 10.96.0.10:80 ->
	//   default/web TCP 192.168.16.1:30080 ->
	// no service:
}

// Literals without field names, and every constructor of the original API, still compile.
func Example_originalNames() {
	svc := renderer.NewContivService()
	svc.ClusterIPs = renderer.NewIPAddresses()
	svc.Ports["dns"] = &renderer.ServicePort{renderer.UDP, 53, 0}
	svc.Backends["dns"] = []*renderer.ServiceBackend{{nil, 53, false, true}}
	ifs := renderer.NewInterfaces("tap0")
	ifs.Add("tap1")
	ifs.Del("tap0")
	ev := renderer.NewResyncEventData()
	ev.Services, ev.FrontendIfs, ev.BackendIfs = append(ev.Services, svc), ifs, ifs.Copy()
	var policy renderer.TrafficPolicyType = renderer.ClusterWide
	fmt.Println(svc.HasNodePort(), svc.Ports["dns"], policy, ifs.Has("tap1"), ev.FrontendIfs)
	// Output: false UDP 53 cluster-wide true [tap1]
}
