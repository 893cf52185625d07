package cost_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

func context(r *rapid.T) cost.Context {
	return rapid.SliceOfN(rapid.IntRange(0, 5000), 1, 40).Draw(r, "context")
}

// TestMoreRulesTakeLonger: no estimate falls when a list of a context has more rules.
func TestMoreRulesTakeLonger(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c, m := context(r), cost.For("v25.10-release")
		at, rules := rapid.IntRange(0, len(c)-1).Draw(r, "at"), rapid.IntRange(0, 5000).Draw(r, "rules")
		i, more := rapid.IntRange(0, len(c)-1).Draw(r, "grows"), append(cost.Context(nil), c...)
		more[i] += 100
		replace := func(c cost.Context) time.Duration { return m.Replace(rules, []cost.Context{c}, []int{at}) }
		swap := func(before, after cost.Context) time.Duration {
			return m.Switch([2]cost.Context{before}, [2]cost.Context{nil, after})
		}
		for _, pair := range [][2]time.Duration{
			{replace(c), replace(more)},
			{swap(c, c), swap(c, more)},
			{swap(c, c), swap(more, c)},
			{m.Write(rules), m.Write(rules + 1)},
			{replace(c), m.Replace(rules+1, []cost.Context{c}, []int{at})},
		} {
			if pair[0] > pair[1] {
				r.Fatalf("%s for less, %s for more", pair[0], pair[1])
			}
		}
		if one, two := replace(c), m.Replace(rules, []cost.Context{c, c}, []int{at, at}); two <= one && c.Rules() > 0 {
			r.Fatalf("%s for one interface, %s for two", one, two)
		}
	})
}

// TestLastListIsCheapest: VPP applies the lists behind a changed list again.
func TestLastListIsCheapest(t *testing.T) {
	var m cost.Model
	c := make(cost.Context, 32)
	for i := range c {
		c[i] = 312
	}
	at := func(i int) time.Duration { return m.Replace(312, []cost.Context{c}, []int{i}) }
	if first, last := at(0), at(31); first < 8*last {
		t.Errorf("first of 32 lists %s, last %s", first, last)
	}
	few, many := cost.Context{9984}, c
	if one, all := m.Switch([2]cost.Context{few}, [2]cost.Context{few}), m.Switch([2]cost.Context{many}, [2]cost.Context{many}); one >= all {
		t.Errorf("switching one list of 9,984 rules takes %s, 32 lists %s", one, all)
	}
}

func TestUnknownVersionHasAModel(t *testing.T) {
	for _, v := range []string{"", "v24.06-release", "v25.10-release", "v99.01"} {
		if cost.For(v).Message("nat44_add_del_lb_static_mapping") <= cost.For(v).Message("anything")/2 {
			t.Errorf("%q: no model", v)
		}
	}
}
