package status

import (
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// The status shows drift that was found and repaired, with a count; the line disappears later.
func TestStatusOfDrift(t *testing.T) {
	now := time.Now()
	p := &Picture{Reader: &Reader{Node: "node-1", Now: func() time.Time { return now }}}
	drifted := func(age time.Duration, contest string) vppagent.Drifted {
		return vppagent.Drifted{Drift: event.Drift{Key: "k", What: event.DriftMissing, Repaired: true, Times: 4, Contest: contest}, Last: now.Add(-age)}
	}
	if got := p.drift([]vppagent.Drifted{drifted(time.Minute, ""), drifted(driftShown, "")}); len(got) != 1 || got[0].Times != 4 {
		t.Errorf("%+v", got)
	}
	broken := drifted(time.Minute, "")
	broken.Repaired, broken.Err = false, "no"
	p.Recheck = 30 * time.Second
	if got := p.drift([]vppagent.Drifted{broken}); got[0].Error != "no" {
		t.Errorf("%+v", got)
	}
	if broken.Last = now.Add(-2 * time.Minute); p.drift([]vppagent.Drifted{broken})[0].Error != "" {
		t.Error("an error that no round found again")
	}
	node := model.Ref{Kind: model.KindNode, Name: "node-1"}
	for _, tc := range []struct {
		d    Drift
		want string
	}{
		{Drift{Key: "k", What: "missing", Repaired: true}, "another program changed VPP: k was missing; the agent repaired it"},
		{Drift{Key: "k", What: "changed"}, "another program changed VPP: k was changed"},
		{Drift{Key: "k", What: "changed", Contest: "x"}, "another program changed VPP: k was changed again and again"},
	} {
		if got := driftProblem(node, &tc.d); got != (event.Problem{Ref: node, Reason: event.Drifted, Text: tc.want}) {
			t.Errorf("%+v", got)
		}
	}
}
