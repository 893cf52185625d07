package agent

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// large returns an agent with n Services of one port and two endpoints each.
func large(tb testing.TB, services int) *Stepper {
	tb.Helper()
	v := sim.New(sim.Config{PuntLocal: true})
	tb.Cleanup(v.Close)
	s, err := NewStepper(tb.Context(), Config{NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, Override: cni.Located(), Sources: map[string]Source{manifest.Name: Fed{}}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	put := func(o model.Object) event.Change { return event.Change{Ref: o.Ref(), Object: o} }
	changes := []event.Change{put(&model.Node{
		Name: "node-1", InternalIPs: []netip.Addr{netip.MustParseAddr("192.168.16.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")},
	})}
	for i := range services {
		svc := &model.Service{
			ID: model.ServiceID{Namespace: "default", Name: fmt.Sprintf("svc-%d", i)}, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})},
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}
		slice := &model.EndpointSlice{
			ID: model.SliceID{Namespace: "default", Name: svc.ID.Name + "-1"}, Service: svc.ID, Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		}
		for j := range 2 {
			slice.Endpoints = append(slice.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 2 + byte(j), byte(i >> 8), byte(i)}), Ready: true, Serving: true, NodeName: "node-2"})
		}
		changes = append(changes, put(svc), put(slice))
	}
	if err := s.Feed(tb.Context(), &event.Update{Source: manifest.Name, Changes: changes}, &event.SyncStatus{Source: manifest.Name, Status: event.InSync}); err != nil {
		tb.Fatal(err)
	}
	return s
}

// BenchmarkStatus measures one status of an agent with 10,000 Services: the loop's part (capture), and the reader's.
func BenchmarkStatus(b *testing.B) {
	s := large(b, 10_000)
	b.Run("capture", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.reader.Capture()
		}
	})
	b.Run("problems", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.reader.Capture().Plain()
		}
	})
	b.Run("status", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.reader.Capture().Full()
		}
	})
}
