package metrics

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/test/samples"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// Every event counts once, under its result; gauges have the last state.
func TestSamples(t *testing.T) {
	m, r := New(), prometheus.NewRegistry()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	if err := m.Register(r); err == nil {
		t.Error("two agents with one registry")
	}
	m.Committed(&event.Committed{Add: 3, Mod: 2, Del: 1, Writes: 9, Drift: []event.Drift{{Kind: "acl", Repaired: true}, {Kind: "acl"}}})
	m.Committed(&event.Committed{Resync: event.Full, Err: errors.New("lost")})
	m.Refused()
	m.State(vpp.State{Connected: true, Generation: 2})
	m.State(vpp.State{Generation: 2, Silent: vpp.Silence{Since: time.Now()}})
	m.State(vpp.State{Generation: 3})
	m.Request("show_version", time.Millisecond, nil)
	m.Request("show_version", time.Millisecond, errors.New("no"))
	m.Request("nat44_lb_static_mapping_dump", time.Millisecond, nil)
	m.Request("acl_add_replace", 2*time.Second, nil)
	m.Unwell(map[event.State]int{event.Failed: 4})
	m.Unwell(map[event.State]int{event.Pending: 1})
	m.Policies(policy.Counts{Policies: 5, Endpoints: 6}, vppagent.ReclassifyUnknown)
	want := map[string]float64{
		`contiv_transactions_total{kind="update",result="ok"}`:                              1,
		`contiv_transactions_total{kind="full-resync",result="failed"}`:                     1,
		`contiv_values_total{operation="add"}`:                                              3,
		`contiv_values_total{operation="mod"}`:                                              2,
		`contiv_values_total{operation="del"}`:                                              1,
		`contiv_vpp_writes_total{}`:                                                         9,
		`contiv_drift_total{kind="acl",result="repaired"}`:                                  1,
		`contiv_drift_total{kind="acl",result="not repaired"}`:                              1,
		`contiv_objects_refused_total{}`:                                                    1,
		`contiv_vpp_connected{}`:                                                            0,
		`contiv_vpp_connection_generation{}`:                                                3,
		`contiv_vpp_silences_total{}`:                                                       1,
		`contiv_vpp_silent_seconds{}`:                                                       0,
		`contiv_vpp_api_requests_total{message="show_version",result="ok"}`:                 1,
		`contiv_vpp_api_requests_total{message="show_version",result="failed"}`:             1,
		`contiv_vpp_api_requests_total{message="nat44_lb_static_mapping_dump",result="ok"}`: 1,
		`contiv_vpp_api_requests_total{message="acl_add_replace",result="ok"}`:              1,
		`contiv_vpp_api_request_duration_seconds{kind="read"}`:                              3,
		`contiv_vpp_api_request_duration_seconds{kind="write"}`:                             1,
		`contiv_vpp_api_request_seconds_total{message="show_version"}`:                      0.002,
		`contiv_vpp_api_request_seconds_total{message="nat44_lb_static_mapping_dump"}`:      0.001,
		`contiv_vpp_api_request_seconds_total{message="acl_add_replace"}`:                   2,
		`contiv_values_unwell{state="PENDING"}`:                                             1,
		`contiv_policies{}`:                                                                 5,
		`contiv_policy_endpoints{}`:                                                         6,
		`contiv_vpp_acl_reclassify{}`:                                                       -1,
	}
	if diff := cmp.Diff(want, samples.Read(t, r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
