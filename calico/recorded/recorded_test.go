package recorded

import (
	"encoding/json"
	"testing"
)

// TestRecordedDataIsComplete counts the recorded data, so that no comparison runs on less.
func TestRecordedDataIsComplete(t *testing.T) {
	var lists, steps, kvs, deletions, messages, workloadRoutes int
	for _, l := range Lists() {
		lists++
		if l.WorkloadRoutes() {
			workloadRoutes++
		}
		for _, s := range l.Steps {
			steps++
			kvs += len(s.KVs)
			messages += len(s.Messages)
			for _, kv := range s.KVs {
				if kv.Deleted {
					deletions++
				}
				if kv.Deleted != (kv.Bytes() == nil) || string(kv.Bytes()) != kv.Value || kv.Key == "" {
					t.Errorf("%s, %s: %+v", l.Name, s.State, kv)
				}
			}
		}
		if l.Name == "" || l.RouteSource != "CalicoIPAM" && l.RouteSource != "WorkloadIPs" {
			t.Errorf("list %q, routes from %q", l.Name, l.RouteSource)
		}
	}
	got := [...]int{lists, steps, kvs, deletions, messages, workloadRoutes}
	if want := [...]int{37, 159, 529, 137, 1352, 1}; got != want {
		t.Errorf("lists, steps, changes, deletions, messages, lists with workload routes: %v, want %v", got, want)
	}
}

func TestAChangeIsALine(t *testing.T) {
	for want, kv := range map[string]KV{
		`{"key":"/a","value":"x"}`:    {Key: "/a", Value: "x"},
		`{"key":"/a","deleted":true}`: {Key: "/a", Deleted: true},
	} {
		if got, err := json.Marshal(kv); string(got) != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}
