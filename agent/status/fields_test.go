package status

import (
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// TestWaitsAreFieldsAndWords: each thing that an agent waits for is a field with the parts of its sentence.
func TestWaitsAreFieldsAndWords(t *testing.T) {
	connected := event.VPPStatus{Connected: true}
	for _, tc := range []struct {
		st           controller.Status
		fields, text string
	}{
		{
			controller.Status{Sources: []event.SyncStatus{{Source: "kube", Status: event.WaitForReady, Err: errors.New("forbidden")}, {Source: "etcd", Status: event.InSync}}},
			`[{"for":"source","name":"kube","state":"wait-for-ready","error":"forbidden"},{"for":"vpp"}]`, "source kube is wait-for-ready: forbidden; VPP is not connected",
		},
		{controller.Status{VPP: event.VPPStatus{Err: vpp.ErrOwned}}, `[{"for":"owner","error":"` + vpp.ErrOwned.Error() + `"}]`, vpp.ErrOwned.Error()},
		{controller.Status{VPP: connected}, `[{"for":"first-sync"}]`, "the first sync has not begun"},
		{controller.Status{VPP: connected, Started: true, InFlight: 7}, `[{"for":"transaction","count":7}]`, "transaction 7 is running"},
		{controller.Status{VPP: connected, Started: true, Left: 3}, `[{"for":"values","count":3}]`, "3 values wait for pauses between requests"},
		{
			controller.Status{VPP: connected, Started: true, Last: &event.Committed{Err: errors.New("refused")}},
			`[{"for":"retry","error":"refused"}]`, "the last transaction failed: refused",
		},
		{controller.Status{VPP: connected, Started: true, Done: true, Last: &event.Committed{}}, `null`, ""},
	} {
		if fields, err := json.Marshal(waits(&tc.st)); err != nil || string(fields) != tc.fields || Waiting(&tc.st) != tc.text {
			t.Errorf("%s (%v), %q\nwant %s, %q", fields, err, Waiting(&tc.st), tc.fields, tc.text)
		}
	}
	st := &Status{Awaited: Awaited{Awaits: []Wait{{For: awaitVPP}}}}
	st.alsoAwaits(true, Wait{For: awaitAnswer, Error: "VPP is silent"})
	st.alsoAwaits(false, Wait{For: awaitNATTable, Error: "it is full"})
	if st.Waiting != "VPP is silent; VPP is not connected; NAT session table: it is full" || len(st.Awaits) != 3 {
		t.Errorf("%q, %+v", st.Waiting, st.Awaits)
	}
}

// TestServiceHasFields: what the line of a Service says is in fields, too.
func TestServiceHasFields(t *testing.T) {
	a := netip.MustParseAddr("10.1.1.2")
	svc := renderer.NewContivService()
	svc.ClusterIPs, svc.SessionAffinityTimeout, svc.TrafficPolicy = renderer.IPAddressesOf(netip.MustParseAddr("10.96.0.1")), 60, renderer.NodeLocal
	svc.Ports["http"] = &renderer.ServicePort{Protocol: renderer.TCP, Port: 80, NodePort: 30080}
	svc.Backends["http"] = []*renderer.ServiceBackend{{IP: a.AsSlice(), Port: 8080, Local: true}}
	svc.BackendNodes = []renderer.BackendNode{{Addr: a, Node: "node-1"}}
	svc.ID = model.ServiceID{Namespace: "prod", Name: "web"}
	got, err := json.Marshal(served(svc))
	if want := `{"clusterIPs":["10.96.0.1"],"affinitySeconds":60,"externalLocal":true,"ports":[{"name":"http","protocol":"TCP","port":80,"nodePort":30080,` +
		`"endpoints":[{"address":"10.1.1.2","port":8080,"local":true,"node":"node-1"}]}]}`; err != nil || string(got) != want {
		t.Errorf("%s (%v)\nwant %s", got, err, want)
	}
}
