package replayed

import (
	"fmt"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/recorder/record"
	"github.com/contiv-agent/contiv-agent/recorder/segment"
	"github.com/contiv-agent/contiv-agent/replay"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
)

// history is a random cluster and its changes, and the journal of them.
type history struct {
	dir     string
	changes []event.Change // one after the other; the first are the cluster at the beginning
	begin   int            // their number
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	world := generate.NewWorld(seed, generate.AllKinds())
	h := &history{dir: t.TempDir()}
	n := &node{t: t}
	for _, o := range world.Objects() {
		h.changes = append(h.changes, n.heard([]generate.Change{{Key: policy.KeyOf(o), Object: o}})...)
	}
	h.begin = len(h.changes)
	for range 15 {
		h.changes = append(h.changes, n.heard(world.Step())...)
	}
	w, err := segment.Open(segment.Config{Dir: h.dir, Bound: 1 << 20, Header: record.Header{Node: nodeName, Sources: []string{"kube"}}, Now: testTime})
	if err != nil {
		t.Fatal(err)
	}
	for i, ch := range h.changes {
		lines := record.Lines(&event.Update{Source: "kube", Changes: []event.Change{ch}})
		if i == h.begin-1 {
			lines = append(lines, record.Lines(&event.SyncStatus{Source: "kube", Status: event.InSync})...)
		}
		if _, err := w.Append(lines); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return h
}

// questions are packets between pods, and to Services.
func (h *history) questions() (out []trace.Step) {
	var pods, to []string
	for _, ch := range h.changes {
		switch o := ch.Object.(type) {
		case *model.Pod:
			if !slices.Contains(pods, o.ID.String()) {
				pods, to = append(pods, o.ID.String()), append(to, "pod:"+o.ID.String()+":80")
			}
		case *model.Service:
			if name := fmt.Sprintf("service:%s:80", o.ID); len(o.Ports) > 0 && !slices.Contains(to, name) {
				to = append(to, name)
			}
		}
	}
	for i, from := range pods {
		for j, dst := range to {
			if (i+j)%3 == 0 {
				out = append(out, trace.Step{Question: trace.Question{From: "pod:" + from, To: dst, Protocol: "TCP"}})
			}
		}
	}
	return out
}

// verdicts asks each question in a fresh cluster after each change: without a journal, and without undoing.
func (h *history) verdicts(t *testing.T, questions []trace.Step) (out [][]string) {
	t.Helper()
	for n := h.begin; n <= len(h.changes); n++ {
		last := map[model.Ref]event.Change{}
		for _, ch := range h.changes[:n] {
			last[ch.Ref] = ch
		}
		var all []event.Change
		for _, ch := range last {
			all = append(all, ch)
		}
		c := trace.NewCluster(trace.Config{Seed: 1})
		if err := c.Apply(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		var row []string
		for _, q := range questions {
			a := c.AnswerStep(q)
			row = append(row, string(a.Verdict))
			if a.Error != "" {
				row[len(row)-1] = "not answerable"
			}
		}
		c.Close()
		out = append(out, row)
	}
	return out
}

// TestBisectAgreesWithFreshClusters: all changes of a verdict are those that fresh clusters show, and a binary search finds one of them.
func TestBisectAgreesWithFreshClusters(t *testing.T) {
	pace.NotRaced(t)
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	turns, searches := 0, 0
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](2, 1)); seed++ {
		h := newHistory(t, seed)
		timeline, err := replay.Load(h.dir)
		if err != nil {
			t.Fatal(err)
		}
		var questions []trace.Step
		for i, q := range h.questions() {
			if i%pace.Every(4) == 0 {
				questions = append(questions, q)
			}
		}
		want := h.verdicts(t, questions)
		for i, q := range questions {
			changed := map[string]bool{}
			var list []string
			for n := 1; n < len(want); n++ {
				if want[n][i] != want[n-1][i] {
					list = append(list, fmt.Sprintf("%s -> %s", want[n-1][i], want[n][i]))
				}
			}
			if len(list) == 0 && i%8 > 0 {
				continue // most questions; a few are asked
			}
			found, err := replay.Bisect(t.Context(), timeline, agent.Config{}, q, true)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, turn := range found.Turns {
				got = append(got, turn.Before.Verdict+" -> "+turn.After.Verdict)
				changed[fmt.Sprint(turn.Record)] = true
			}
			if !slices.Equal(got, list) {
				t.Errorf("seed %d, %+v: found %q, fresh clusters say %q", seed, q.Question, got, list)
			}
			turns += len(got)
			if found.First.Verdict == found.Last.Verdict {
				continue
			}
			searches++
			one, err := replay.Bisect(t.Context(), timeline, agent.Config{}, q, false)
			if err != nil {
				t.Fatal(err)
			}
			if len(one.Turns) != 1 || !changed[fmt.Sprint(one.Turns[0].Record)] || one.Turns[0].Before.Verdict == one.Turns[0].After.Verdict {
				t.Errorf("seed %d, %+v: the search found %+v", seed, q.Question, one.Turns)
			}
		}
	}
	t.Logf("%d changes of verdicts, %d searches", turns, searches)
	if turns < 3 || searches == 0 {
		t.Error("too little was compared")
	}
}
