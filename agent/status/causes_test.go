package status

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// stated checks that each reason has a cause, whose names are those in the reason.
func stated(t *testing.T, reasons []string, causes []Cause) {
	t.Helper()
	if len(reasons) != len(causes) {
		t.Fatalf("%d reasons %q, and %d causes: %+v", len(reasons), reasons, len(causes), causes)
	}
	for i, c := range causes {
		names := []string{c.Object, c.Endpoint, c.Protocol}
		if c.Value != nil {
			names = append(append(names, c.Value.Key, c.Value.State, c.Value.Error), c.Value.Waiting...)
		}
		for _, name := range names {
			if c.Of == ofRemark && c.Object != "" && name == c.Endpoint {
				continue // the object is the host endpoint
			}
			if !strings.Contains(reasons[i], name) {
				t.Errorf("%q does not name %s of its cause %+v", reasons[i], name, c)
			}
		}
	}
}

// A Service has each kind of reason, in words and as fields.
func TestCausesOfServices(t *testing.T) {
	id := model.ServiceID{Namespace: "prod", Name: "web"}
	ref := model.Ref{Kind: model.KindService, Namespace: "prod", Name: "web"}
	of := service.Status{
		ID: id, Notes: []model.Note{{Ref: ref, Reason: "no source ranges", Refused: true}}, Err: errors.New("broken"),
		Rendered: &renderer.ContivService{ID: id, Ports: map[string]*renderer.ServicePort{"a": {Protocol: renderer.TCP, Port: 80}}},
	}
	owners := []controller.OwnerStatus{{
		Notes:  []model.Note{{Ref: ref, Reason: "slow"}, {Ref: model.Ref{Kind: model.KindNode}, Reason: "not about it"}},
		Unwell: []event.ValueStatus{{Key: "k", State: event.Pending, Details: []string{"a", "b"}}, {Key: "l", State: event.Failed, Err: "no memory"}},
	}}
	got := serviceStatus(of, owners, []string{"port in use"}, false)
	stated(t, got.Reasons, got.Causes)
	text, err := json.Marshal(got.Causes)
	want := `[{"of":"remark","refused":true},{"of":"remark"},{"of":"value","value":{"key":"k","state":"PENDING","waitingFor":["a","b"]}},` +
		`{"of":"value","value":{"key":"l","state":"FAILED","error":"no memory"}},{"of":"health-checks"},{"of":"renderer"},{"of":"no-endpoints","port":80,"protocol":"TCP"}]`
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	of.Skipped = "another proxy serves it"
	got = serviceStatus(of, owners, nil, false)
	stated(t, got.Reasons, got.Causes)
	if got.State != Skipped || got.Reasons[0] != of.Skipped || got.Causes[0] != (Cause{Of: ofSkipped}) || len(got.Causes) != 3 {
		t.Errorf("%+v", got)
	}
}
