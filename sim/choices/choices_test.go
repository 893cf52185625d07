package choices

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNextCountsThroughAllDecisions(t *testing.T) {
	var got []string
	script := []int{}
	for script != nil {
		got = append(got, fmt.Sprint(script))
		options := []int{2, 3}
		if len(script) > 0 && script[0] == 1 {
			options = []int{2} // the second decision does not occur then
		}
		script = Next(script, options)
	}
	want := []string{"[]", "[0 1]", "[0 2]", "[1]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}
