package event

import "testing"

func TestSummarizeDrift(t *testing.T) {
	a, b, c := Drift{Key: "a", What: DriftMissing, Repaired: true}, Drift{Key: "b", What: DriftChanged, Err: "refused"}, Drift{Key: "c", What: DriftExtra, Repaired: true}
	for _, x := range []struct {
		list     []Drift
		repaired int
		line     string
	}{
		{nil, 0, ""},
		{[]Drift{a, b}, 1, "a is missing, repaired; b is changed, not repaired: refused"},
		{[]Drift{a, b, c}, 2, "a is missing, repaired; b is changed, not repaired: refused; and 1 more"},
	} {
		if repaired, line := SummarizeDrift(x.list, 2); repaired != x.repaired || line != x.line {
			t.Errorf("%d, %q; want %d, %q", repaired, line, x.repaired, x.line)
		}
	}
}
