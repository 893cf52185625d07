package policy

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// A pod serves the ports that its containers declare and the target ports of services. Only local pods with an interface count, each
// port once.
func TestServed(t *testing.T) {
	p, r := newTest()
	check := func(want string) {
		t.Helper()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range r.node.Served {
			got = append(got, fmt.Sprintf("%s/%d:%d-%d", s.Addr, s.Proto, s.First, s.Last))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("served %q, want %q", text, want)
		}
	}
	declares := func(ports ...model.ContainerPort) func(*model.Pod) {
		return func(pod *model.Pod) { pod.ContainerPorts = ports }
	}
	tcp := model.ContainerPort{Protocol: model.TCP, Port: 40000}
	p.Located(&event.Located{Pods: map[netip.Addr]string{addr("10.1.1.2"): "tap-web"}})
	apply(p, pod("web", "10.1.1.2", declares(tcp, model.ContainerPort{Protocol: model.TCP, Port: 32767}, model.ContainerPort{Protocol: model.SCTP, Port: 40001}, model.ContainerPort{Protocol: model.UDP, Port: 53})))
	check("10.1.1.2/6:40000-40000 10.1.1.2/17:53-53")
	apply(p, pod("gone", "10.1.1.9", declares(tcp)), pod("far", "10.1.2.9", declares(tcp)))
	check("10.1.1.2/6:40000-40000 10.1.1.2/17:53-53")
	service := func(port uint16, local bool) *renderer.ContivService {
		svc := renderer.NewContivService()
		svc.ID = model.ServiceID{Namespace: "prod", Name: "web"}
		svc.Ports["dns"] = &renderer.ServicePort{Protocol: renderer.UDP, Port: 53}
		svc.Backends["dns"] = []*renderer.ServiceBackend{{IP: net.ParseIP("10.1.1.2"), Port: port, Local: local}}
		return svc
	}
	tr := p.Translations()
	a, b := service(50000, true), service(50001, true)
	if err := tr.AddService(a); err != nil {
		t.Fatal(err)
	}
	check("10.1.1.2/6:40000-40000 10.1.1.2/17:53-53 10.1.1.2/17:50000-50000")
	if err := tr.UpdateService(a, b, nil); err != nil {
		t.Fatal(err)
	}
	check("10.1.1.2/6:40000-40000 10.1.1.2/17:53-53 10.1.1.2/17:50001-50001")
	if err := tr.DeleteService(b, nil); err != nil {
		t.Fatal(err)
	}
	apply(p, pod("web", "10.1.1.2", func(pod *model.Pod) { pod.Ports = []model.NamedPort{{Name: "x", Protocol: model.UDP, Port: 65535}} }))
	check("10.1.1.2/17:65535-65535")
	if err := tr.AddService(service(40000, false)); err != nil {
		t.Fatal(err)
	}
	remove(p, pod("web", "10.1.1.2"))
	check("")
}
