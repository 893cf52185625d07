package viproute

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// world is an agent of node-1 on a simulated VPP, with viproute as its only service renderer.
type world struct {
	t     *testing.T
	vpp   *sim.VPP
	cni   *cni.CNI
	agent *agent.Stepper
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, vpp: sim.New(sim.Config{})}
	t.Cleanup(w.vpp.Close)
	w.cni = cni.New(w.vpp, "node-1")
	a, err := agent.NewStepper(t.Context(), agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: w.vpp.Dial}, Override: cni.Located(), Services: config.Services{Off: true, More: []func(renderer.Sink) renderer.ServiceRendererAPI{New}}, Policies: config.Policies{Off: true},
		Sources: map[string]agent.Source{manifest.Name: nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	w.agent = a
	changes, err := manifest.Load("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.feed(changes...)
	return w
}

func (w *world) feed(changes ...event.Change) {
	w.t.Helper()
	for _, ch := range changes {
		if ch.Err != nil {
			w.t.Fatal(ch.Err)
		}
	}
	if err := w.cni.Apply(changes); err != nil {
		w.t.Fatal(err)
	}
	err := w.agent.Feed(w.t.Context(), &event.Update{Source: manifest.Name, Changes: changes}, &event.SyncStatus{Source: manifest.Name, Status: event.InSync})
	if err != nil {
		w.t.Fatal(err)
	}
}

// arrives sends a packet from the client to a cluster IP and returns the interfaces by which copies of it leave.
func (w *world) arrives(vip string) string {
	client := model.PodID{Namespace: "default", Name: "client"}
	fate := w.vpp.Send(cni.PodInterface(client), packet.NewTCP(netip.MustParseAddrPort("10.1.1.2:40000"), netip.MustParseAddrPort(vip)))
	var out []string
	for _, o := range fate.Out {
		if o.Packet.Dst == netip.MustParseAddrPort(vip).Addr() {
			out = append(out, o.Interface)
		}
	}
	return strings.Join(out, " ")
}

// A packet keeps the cluster IP as its destination and leaves towards the endpoint.
func TestPacketsFollowEndpoints(t *testing.T) {
	w := start(t)
	here := cni.PodInterface(model.PodID{Namespace: "default", Name: "here"})
	for vip, want := range map[string]string{"10.96.0.10:80": here, "10.96.0.20:80": cni.Overlay, "10.96.0.30:80": cni.Uplink} {
		if got := w.arrives(vip); got != want {
			t.Errorf("a packet to %s leaves by %q, want %q", vip, got, want)
		}
	}
	notes := w.agent.Notes(model.Ref{Kind: model.KindService, Namespace: "default", Name: "lost"})
	if !slices.Equal(notes, []string{"endpoint 10.1.3.2 is not served: its node is not known"}) {
		t.Errorf("notes on the Service whose endpoint has no node: %q", notes)
	}
}

// A Service that goes takes its routes along, and leaves others alone.
func TestRoutesGoWithTheirService(t *testing.T) {
	w := start(t)
	w.feed(event.Change{Ref: model.Ref{Kind: model.KindService, Namespace: "default", Name: "far"}})
	if got := w.arrives("10.96.0.20:80"); got != cni.Uplink {
		t.Errorf("a packet to a Service that is gone leaves by %q, want the default route", got)
	}
	if got := w.arrives("10.96.0.10:80"); got == cni.Uplink {
		t.Error("the other Service has lost its route")
	}
}
