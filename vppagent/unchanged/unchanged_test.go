package unchanged

import (
	"context"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/digest"
)

// text is a VPP whose answers are texts, by the command of the request; an unknown command has an answer without a digest.
type text struct {
	answers map[string]string
	errors  map[string]error
	details int
	asked   [][]vpp.Call
}

func (v *text) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	v.asked = append(v.asked, calls)
	var out []vpp.Reply
	for _, c := range calls {
		cmd := c.Msg.(*vlib.CliInband).Cmd
		r := vpp.Reply{Err: v.errors[cmd]}
		if a, ok := v.answers[cmd]; ok && (c.Digest || c.Brief) {
			r.Digest = digest.Empty.With([]byte(a))
		}
		if !c.Brief {
			r.Details = make([]api.Message, v.details)
		}
		out = append(out, r)
	}
	return out
}

func show(cmd string) vpp.Call { return vpp.Call{Msg: &vlib.CliInband{Cmd: cmd}} }

func newAnswers() (*Answers, *text) {
	v := &text{answers: map[string]string{"a": "1", "b": "2", "c": "3"}, errors: map[string]error{}}
	return &Answers{Caller: v}, v
}

// compare is a comparison of turn 0 that finds nothing to do, with two groups of requests.
func compare(a *Answers) {
	a.Record()
	a.Do(context.Background(), show("a"), show("b"))
	a.Do(context.Background(), show("c"))
	a.Keep(0)
}

func unchanged(a *Answers) bool { return a.Unchanged(context.Background(), 0) }

func TestUnchanged(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(*Answers, *text) // the comparison
		want          bool
	}{
		"the same answers":                    {nil, nil, true},
		"the first answer differs":            {nil, func(_ *Answers, v *text) { v.answers["a"] = "x" }, false},
		"the last answer differs":             {nil, func(_ *Answers, v *text) { v.answers["c"] = "x" }, false},
		"VPP is away":                         {nil, func(_ *Answers, v *text) { v.answers = nil }, false},
		"the agent changes something":         {nil, func(a *Answers, _ *text) { a.Forget() }, false},
		"an answer has no digest":             {func(_ *Answers, v *text) { delete(v.answers, "b") }, nil, false},
		"a request fails":                     {func(_ *Answers, v *text) { v.errors["b"] = vpp.ErrDisconnected }, nil, false},
		"VPP refuses a request, as before":    {func(_ *Answers, v *text) { v.errors["b"] = &vpp.Retval{Code: -1} }, nil, true},
		"VPP lacks a request, and has no sum": {func(_ *Answers, v *text) { delete(v.answers, "b"); v.errors["b"] = &vpp.MissingError{} }, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, v := newAnswers()
			if unchanged(a) || len(v.asked) > 0 {
				t.Error("unchanged before the first comparison")
			}
			if c.before != nil {
				c.before(a, v)
			}
			compare(a)
			if c.after != nil {
				c.after(a, v)
			}
			if got := unchanged(a); got != c.want {
				t.Errorf("%t", got)
			}
			if a.Unchanged(context.Background(), 1) {
				t.Error("another turn is unchanged")
			}
		})
	}
}

// A change of the agent while it compares makes the comparison worthless, and requests outside a comparison are not part of it.
func TestRecordOfACompleteComparison(t *testing.T) {
	a, v := newAnswers()
	a.Record()
	a.Do(context.Background(), show("a"))
	a.Forget()
	a.Keep(0)
	if unchanged(a) {
		t.Error("the agent changed something while it compared")
	}
	a.Record()
	a.Do(context.Background(), show("a"))
	a.Drop()
	a.Keep(0)
	if unchanged(a) {
		t.Error("a comparison without a result counts")
	}
	compare(a)
	v.asked = nil
	if a.Do(context.Background(), show("b")); v.asked[0][0].Digest {
		t.Error("a request outside of a comparison asks for a digest")
	}
	v.answers["unknown"] = "4"
	if !unchanged(a) {
		t.Error("a request outside of a comparison is part of it")
	}
}

// Short answers are asked for at once, long ones in the groups of the comparison.
func TestGroups(t *testing.T) {
	for details, want := range map[int]int{0: 1, mostJoined / 3: 1, mostJoined/3 + 1: 2} {
		a, v := newAnswers()
		v.details = details
		compare(a)
		v.asked = nil
		if !unchanged(a) || len(v.asked) != want {
			t.Errorf("%d details of each request: %d groups, want %d", details, len(v.asked), want)
		}
		for _, c := range v.asked[0] {
			if !c.Brief {
				t.Errorf("%+v asks for details", c)
			}
		}
	}
}

// Answers that change by themselves are not asked for twice in each turn.
func TestAnswersThatChangeByThemselves(t *testing.T) {
	a, v := newAnswers()
	asked := 0
	for i := range 2 * vainPause {
		compare(a)
		v.answers["b"] += "x"
		before := len(v.asked)
		if unchanged(a) {
			t.Fatalf("turn %d is unchanged", i)
		}
		asked += len(v.asked) - before
	}
	if asked != 2*vainMost-1 && asked != 2*vainMost {
		t.Errorf("asked %d times in vain", asked)
	}
	for range vainPause + 1 {
		compare(a)
		if unchanged(a) {
			return
		}
	}
	t.Error("answers that have come to rest are compared in full for ever")
}
