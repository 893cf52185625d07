package datastore_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/calico/recorded"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// driver reads the output of Lines: one state per flush.
type driver struct {
	*mirror.Mirror
	states [][]string
	errors []string
}

func drive(t testing.TB, out io.Reader) *driver {
	t.Helper()
	d := &driver{Mirror: mirror.New()}
	scan := bufio.NewScanner(out)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var own struct {
			Flushed bool
			Error   string
		}
		m := &felix.ToDataplane{}
		switch err := protojson.Unmarshal(scan.Bytes(), m); {
		case err == nil:
			d.Apply([]*felix.ToDataplane{m}, true)
		case json.Unmarshal(scan.Bytes(), &own) != nil:
			t.Fatalf("%s: neither a message nor a line of our own", scan.Text())
		case own.Flushed:
			d.states = append(d.states, d.Dump())
		default:
			d.errors = append(d.errors, own.Error)
		}
	}
	return d
}

// TestLinesAreFelix feeds the states of Felix's own tests as lines, with values as text and as JSON. Each flush must give
// Felix's state.
func TestLinesAreFelix(t *testing.T) {
	places := 0
	for _, l := range recorded.Lists() {
		for _, asJSON := range []bool{false, true} {
			var in bytes.Buffer
			var want [][]string
			fmt.Fprintln(&in, `{"status":"wait-for-ready"}`+"\n"+`{"status":"resync"}`+"\n"+`{"status":"in-sync"}`)
			m := mirror.New()
			for _, step := range l.Steps {
				for _, kv := range step.KVs {
					in.Write(spelled(t, kv, asJSON))
				}
				for _, raw := range step.Messages {
					msg := &felix.ToDataplane{}
					if err := protojson.Unmarshal(raw, msg); err != nil {
						t.Fatal(err)
					}
					m.Apply([]*felix.ToDataplane{msg}, false)
				}
				fmt.Fprintln(&in, `{"flush":true}`)
				want = append(want, m.Dump())
			}
			var out bytes.Buffer
			lines := datastore.Lines{Graph: calc.Config{
				Node: "localhostname", NodeResources: l.UseNodeResources, WorkloadRoutes: l.WorkloadRoutes(),
			}}
			if err := lines.Run(&in, &out); err != nil {
				t.Fatal(err)
			}
			got := drive(t, &out)
			got.Check(t, l.Name)
			if len(got.errors) > 0 || got.InSyncs != 1 {
				t.Errorf("%s: errors %q, %d times in sync", l.Name, got.errors, got.InSyncs)
			}
			if diff := cmp.Diff(want, got.states); diff != "" {
				t.Errorf("%s (-Felix +lines):\n%s", l.Name, diff)
			}
			places += len(want)
		}
	}
	if places < 100 {
		t.Errorf("only %d places compared", places)
	}
}

// spelled returns a line with its value as text, or, if asJSON, as JSON.
func spelled(t testing.TB, kv recorded.KV, asJSON bool) []byte {
	t.Helper()
	l := map[string]any{"key": kv.Key, "value": kv.Value}
	switch {
	case kv.Deleted:
		l = map[string]any{"key": kv.Key, "deleted": true}
	case asJSON && json.Valid(kv.Bytes()):
		l["value"] = json.RawMessage(kv.Value)
	}
	out, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

func TestLinesSayWhatIsWrong(t *testing.T) {
	in := strings.Join([]string{
		`{"status":"in-sync"}`, ``, `{"flush":true}`,
		`x`, `{"key":"/calico/v1/nothing","value":"x"}`, `{"flush":false}`, `{"flush":true,"status":"in-sync"}`, `{"status":"out"}`,
		`{"key":"/calico/v1/host/n1/bird_ip"}`, `{"key":"/calico/v1/host/n1/bird_ip","value":null}`, `{"key":"/calico/v1/host/n1/bird_ip","value":"x","deleted":true}`,
		`{"deleted":true}`, `{"flush":true,"color":"red"}`, `{"flush":true} {"flush":true}`, `{"key":"/calico/v1/config/x","value":"` + strings.Repeat("x", 2000) + `"}`,
		`{"key":"/calico/v1/host/n1/bird_ip","value":"10.0.0.1"}`,
		`{"key":"/calico/v1/host/n1/bird_ip","value":"10.0.0.256"}`,
		`{"key":"/calico/v1/config/X","value":5}`,
	}, "\n")
	var out bytes.Buffer
	if err := (datastore.Lines{MaxLine: 1000}).Run(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	d := drive(t, &out)
	want := []string{
		`line 4: invalid character 'x' looking for beginning of value`,
		`line 5: "/calico/v1/nothing": not a key of the datastore`,
		`line 6: must have one of "key", "flush":true and "status"`,
		`line 7: must have one of "key", "flush":true and "status"`,
		`line 8: status "out" must be wait-for-ready, resync or in-sync`,
		`line 9: must have either "value" or "deleted":true`,
		`line 10: must have either "value" or "deleted":true`,
		`line 11: must have either "value" or "deleted":true`,
		`line 12: must have one of "key", "flush":true and "status"`,
		`line 13: json: unknown field "color"`,
		`line 14: more than one value`,
		`line 15: longer than 1000 bytes`,
		`line 17: /calico/v1/host/n1/bird_ip: "10.0.0.256" is not an IP address`,
	}
	if diff := cmp.Diff(want, d.errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(d.states) != 2 || !strings.Contains(strings.Join(d.states[1], "\n"), `value:"5"`) || strings.Contains(strings.Join(d.states[1], "\n"), "10.0.0.1") {
		t.Errorf("states %q: want one at the flush, and one at the end with the parameter, and without the address that went bad", d.states)
	}
}

// A problem of a policy is written once, when it begins to matter.
func TestLinesReportPolicyProblemOnce(t *testing.T) {
	in := strings.Join([]string{
		`{"status":"in-sync"}`,
		`{"key":"/calico/v1/host/n1/workload/k8s/w/endpoint/e","value":{"state":"active","name":"cali1","labels":{"a":"b"}}}`,
		`{"key":"/calico/v1/policy/tier/default/policy/x","value":{"selector":"all()","inbound_rules":[{"src_selector":"a =="}]}}`,
		`{"flush":true}`, `{"key":"/calico/v1/config/X","value":"5"}`, `{"flush":true}`,
	}, "\n")
	var out bytes.Buffer
	if err := (datastore.Lines{Graph: calc.Config{Node: "n1"}}).Run(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if d := drive(t, &out); len(d.errors) != 1 || !strings.Contains(d.errors[0], "default/x") || len(d.states) != 2 {
		t.Errorf("errors %q in %d flushes", d.errors, len(d.states))
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"status":"in-sync"}` + "\n" + `{"key":"/calico/v1/host/n1/bird_ip","value":"10.0.0.1"}` + "\n" + `{"flush":true}`))
	for _, l := range recorded.Lists()[:3] {
		var in bytes.Buffer
		for _, kv := range l.Steps[0].KVs {
			in.Write(spelled(f, kv, true))
		}
		f.Add(in.Bytes())
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		if err := (datastore.Lines{Graph: calc.Config{Node: "localhostname"}, MaxLine: 4096}).Run(bytes.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		drive(t, &out).Check(t, "fuzz")
	})
}
