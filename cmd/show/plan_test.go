package show

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/vppagent"
)

func TestPlanForProgramsHasTheFieldsOfKeys(t *testing.T) {
	const dnat = "config/vpp/nat/v2/dnat44/web"
	p := &vppagent.Plan{
		Levels:  [][]vppagent.Step{{{Action: vppagent.Create, Key: dnat, Messages: []string{"x"}}, {Action: vppagent.Delete, Key: "other", Messages: []string{"y"}}}},
		Pending: []vppagent.Note{{Key: dnat, Why: "it waits"}}, Foreign: []string{"acl 7"},
	}
	text, err := json.Marshal(DataOf(p))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"foreign":["acl 7"],"levels":[[{"action":"create","key":"config/vpp/nat/v2/dnat44/web","messages":["x"],"model":"vpp.nat.dnat44","name":"web"},` +
		`{"action":"delete","key":"other","messages":["y"]}]],"pending":[{"key":"config/vpp/nat/v2/dnat44/web","why":"it waits","model":"vpp.nat.dnat44","name":"web"}],` +
		`"creates":1,"updates":0,"deletes":1,"messages":2}`
	if string(text) != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if text, _ := json.Marshal(DataOf(&vppagent.Plan{})); string(text) != `{"levels":[],"creates":0,"updates":0,"deletes":0,"messages":0}` {
		t.Errorf("an empty plan: %s", text)
	}
}

func TestPlanCountsItsChanges(t *testing.T) {
	p := &vppagent.Plan{Levels: [][]vppagent.Step{
		{{Action: vppagent.Create, Key: "a", Messages: []string{"x", "y"}}, {Action: vppagent.Delete, Key: "b", Messages: []string{"z"}}},
		{{Action: vppagent.Create, Key: "c", Unknown: "VPP has not assigned it"}},
	}}
	var text strings.Builder
	Plan(&text, p)
	if want := "\nplan: 2 to create, 0 to update, 1 to delete; 3 messages, and those of 1 changes that are not known yet\n"; !strings.HasSuffix(text.String(), want) {
		t.Error(text.String())
	}
	if got := PlanNames(p); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Error(got)
	}
	text.Reset()
	Plan(&text, &vppagent.Plan{})
	if text.String() != "nothing to do\n" {
		t.Error(text.String())
	}
}
