package show

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/vppagent"
)

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
