package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/calico/recorded"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// TestCalcEqualsFelix pipes the states of Felix's own tests through the command, with the recorded flags, and expects at
// each flush the dataplane that Felix v3.31.0 made.
func TestCalcEqualsFelix(t *testing.T) {
	for _, l := range recorded.Lists() {
		in := bytes.NewBufferString(`{"status":"in-sync"}` + "\n")
		lines := json.NewEncoder(in)
		var want, got [][]string
		m := mirror.New()
		take := func(text []byte) bool {
			msg := &pb.ToDataplane{}
			if protojson.Unmarshal(text, msg) != nil {
				return false
			}
			m.Apply([]*pb.ToDataplane{msg}, false)
			return true
		}
		for _, step := range l.Steps {
			for _, kv := range step.KVs {
				if err := lines.Encode(kv); err != nil {
					t.Fatal(err)
				}
			}
			in.WriteString(`{"flush":true}` + "\n")
			for _, text := range step.Messages {
				take(text)
			}
			want = append(want, m.Dump())
		}
		args := []string{"calc", "--hostname", "localhostname", "--route-source", l.RouteSource}
		if l.UseNodeResources {
			args = append(args, "--use-node-resources")
		}
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(args)
		root.SetIn(in)
		root.SetOut(&out)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		m = mirror.New()
		for scan := bufio.NewScanner(&out); scan.Scan(); {
			switch text := scan.Text(); {
			case text == `{"flushed":true}`:
				got = append(got, m.Dump())
			case !take(scan.Bytes()):
				t.Errorf("%s: %s", l.Name, text)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-Felix +calc):\n%s", l.Name, diff)
		}
	}
}
