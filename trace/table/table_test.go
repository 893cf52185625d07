package table

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/trace"
)

func TestWrite(t *testing.T) {
	cell := func(from, to, family string, v trace.Verdict) trace.Cell {
		return trace.Cell{From: "pod:" + from, To: "pod:" + to, Port: "80/TCP", Family: family, Verdict: v}
	}
	cells := []trace.Cell{
		cell("a/web", "b/db", "IPv4", trace.Delivered), cell("b/db", "a/web", "IPv4", trace.Dropped), cell("b/db", "c/x", "IPv4", trace.Rejected),
		cell("c/x", "a/web", "IPv4", ""), cell("a/web", "b/db", "IPv6", trace.Delivered),
	}
	var got bytes.Buffer
	Write(&got, cells, 0)
	want := `+ delivered  x dropped  r rejected  ? cannot be asked; rows are clients, columns are servers

80/TCP IPv4: 1 of 4
            1 2 3
1 pod:a/web . + .
2 pod:b/db  x . r
3 pod:c/x   ? . .

80/TCP IPv6: 1 of 1
1 pod:a/web
2 pod:b/db

            2
1 pod:a/web +
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

// A matrix that is wider than the terminal is written in parts; names that leave no room for a part are written above it.
func TestTableFitsItsWidth(t *testing.T) {
	var cells []trace.Cell
	for i := range 30 {
		for j := range 30 {
			if i != j {
				cells = append(cells, trace.Cell{From: fmt.Sprintf("pod:prod/web-%02d", i), To: fmt.Sprintf("pod:prod/web-%02d", j), Port: "80/TCP", Family: "IPv4", Verdict: trace.Delivered})
			}
		}
	}
	for columns, parts := range map[int]int{0: 1, 200: 1, 60: 3, 24: 5} {
		var got bytes.Buffer
		Write(&got, cells, columns)
		_, table, _ := strings.Cut(got.String(), "870 of 870\n")
		if n := strings.Count(table, " +"); n != 870 {
			t.Errorf("%d columns: %d answers", columns, n)
		}
		rows := 0
		for line := range strings.Lines(table) {
			if len(strings.TrimSuffix(line, "\n")) > columns && columns > 0 {
				t.Errorf("%d columns: %q has %d", columns, line, len(line))
			}
			if strings.HasPrefix(line, " 1 ") && strings.Contains(line, "+") {
				rows++
			}
		}
		if rows != parts {
			t.Errorf("%d columns: the first client is in %d parts, want %d\n%s", columns, rows, parts, table)
		}
	}
}
