package table

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// A flush sends the difference between the sent and the desired state alone, in the order of the keys.
func TestFlushSendsTheDifference(t *testing.T) {
	x := New[string](Same[int])
	var sent []string
	flush := func() string {
		sent = nil
		x.Flush(strings.Compare,
			func(k string, _ int) *felix.ToDataplane { sent = append(sent, "+"+k); return nil },
			func(k string) *felix.ToDataplane { sent = append(sent, "-"+k); return nil })
		return strings.Join(sent, " ")
	}
	for i, step := range []struct {
		change func()
		want   string
	}{
		{func() { x.Set("b", 1); x.Set("a", 1) }, "+a +b"},
		{func() {}, ""},
		{func() { x.Set("a", 2); x.Set("a", 1) }, ""},
		{func() { x.Remove("b"); x.Set("b", 1) }, ""},
		{func() { x.Remove("b"); x.Set("a", 3) }, "+a -b"},
		{func() { x.Set("c", 1); x.Remove("c") }, ""},
		{func() { x.Remove("a") }, "-a"},
	} {
		step.change()
		got := strings.Fields(flush())
		slices.Sort(got)
		if s := strings.Join(got, " "); s != step.want {
			t.Errorf("step %d: %q, want %q", i, s, step.want)
		}
	}
	if n := x.Held(); n != 0 {
		t.Errorf("the table holds %d keys", n)
	}
}
