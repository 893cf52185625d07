package trace

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
)

func TestParsePort(t *testing.T) {
	for _, s := range []string{"80/TCP", "53/UDP", "132/SCTP", "ICMP"} {
		if p, err := ParsePort(s); err != nil || p.String() != s {
			t.Errorf("ParsePort(%q) = %s, %v", s, p, err)
		}
	}
	if p, err := ParsePort("80/tcp"); err != nil || p != (Port{80, model.TCP}) {
		t.Errorf("ParsePort(80/tcp) = %s, %v", p, err)
	}
	for s, want := range map[string]string{
		"80": "protocol", "80/": "protocol", "TCP": "want <number>/<protocol>", "0/TCP": "must be 1 to 65535", "1/ICMP": "no ports", "70000/UDP": "must be 1 to 65535", "80/IGMP": "protocol",
	} {
		if _, err := ParsePort(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePort(%q): %v, want something about %q", s, err, want)
		}
	}
}

// TestMatrix: each cell equals the answer to its single question.
func TestMatrix(t *testing.T) {
	c := guestbook(t, Config{})
	cells, err := c.Matrix(context.Background(), Pairs{Ports: []Port{{6379, model.TCP}, {0, model.ICMP}}})
	if err != nil {
		t.Fatal(err)
	}
	pods := len(c.matrixPods())
	if want := 2 * pods * (pods - 1); len(cells) != want || pods < 4 {
		t.Fatalf("%d cells of %d pods, want %d", len(cells), pods, want)
	}
	for _, cell := range cells {
		want := Delivered
		if strings.HasPrefix(cell.From, "pod:kube-system/") && strings.HasPrefix(cell.To, "pod:guestbook/redis-") {
			want = Dropped // NetworkPolicy guestbook/redis
		}
		if cell.Verdict != want || cell.Reason == "" || cell.From == cell.To {
			t.Errorf("%+v, want %s", cell, want)
		}
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Matrix(canceled, Pairs{Ports: []Port{{80, model.TCP}}}); err == nil {
		t.Error("Matrix does not heed its context")
	}
}

func TestWriteMatrix(t *testing.T) {
	cell := func(from, to, family string, v Verdict) Cell {
		return Cell{From: "pod:" + from, To: "pod:" + to, Port: "80/TCP", Family: family, Verdict: v}
	}
	cells := []Cell{
		cell("a/web", "b/db", ipv4, Delivered), cell("b/db", "a/web", ipv4, Dropped), cell("b/db", "c/x", ipv4, Rejected),
		cell("c/x", "a/web", ipv4, ""), cell("a/web", "b/db", ipv6, Delivered),
	}
	var got bytes.Buffer
	WriteMatrix(&got, cells, 0)
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
func TestWriteMatrixFitsItsWidth(t *testing.T) {
	var cells []Cell
	for i := range 30 {
		for j := range 30 {
			if i != j {
				cells = append(cells, Cell{From: fmt.Sprintf("pod:prod/web-%02d", i), To: fmt.Sprintf("pod:prod/web-%02d", j), Port: "80/TCP", Family: ipv4, Verdict: Delivered})
			}
		}
	}
	for columns, parts := range map[int]int{0: 1, 200: 1, 60: 3, 24: 5} {
		var got bytes.Buffer
		WriteMatrix(&got, cells, columns)
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

// Namespaces select the clients and the servers; the progress ends with the last row.
func TestMatrixOfNamespaces(t *testing.T) {
	c := guestbook(t, Config{})
	last := [2]int{}
	cells, err := c.Matrix(context.Background(), Pairs{
		Ports: []Port{{80, model.TCP}}, Clients: []string{"kube-system"}, Servers: []string{"guestbook"}, Progress: func(done, all int) { last = [2]int{done, all} },
	})
	if err != nil || len(cells) == 0 {
		t.Fatal(len(cells), err)
	}
	for _, cell := range cells {
		if !strings.HasPrefix(cell.From, "pod:kube-system/") || !strings.HasPrefix(cell.To, "pod:guestbook/") {
			t.Errorf("%+v", cell)
		}
	}
	if last[0] != last[1] || last[0] == 0 {
		t.Errorf("progress %v", last)
	}
}

func TestCompare(t *testing.T) {
	cell := func(from, to string, v Verdict, why string) Cell {
		return Cell{From: from, To: to, Port: "80/TCP", Family: ipv4, Verdict: v, Reason: why}
	}
	before := []Cell{cell("a", "b", Delivered, "free"), cell("b", "a", Dropped, "closed"), cell("a", "old", Delivered, "free"), cell("old", "a", Dropped, "closed"), cell("a", "x", Dropped, "one"), cell("x", "a", Rejected, "one")}
	after := []Cell{cell("a", "b", Dropped, "policy p"), cell("b", "a", Delivered, "rule 1"), cell("a", "new", Delivered, "free"), cell("new", "a", Dropped, "closed"), cell("a", "x", Rejected, "other"), cell("x", "a", Dropped, "other")}
	var got bytes.Buffer
	WriteDifferences(&got, Compare(before, after))
	want := `- a -> b 80/TCP IPv4
    before: delivered: free
    after:  dropped: policy p
+ b -> a 80/TCP IPv4
    before: dropped: closed
    after:  delivered: rule 1
+ a -> new 80/TCP IPv4
    before: new does not exist, or has no IPv4 address
    after:  delivered: free
- a -> old 80/TCP IPv4
    before: delivered: free
    after:  old does not exist, or has no IPv4 address
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	got.Reset()
	WriteDifferences(&got, Compare(before, before))
	if got.String() != "the same connections are possible\n" {
		t.Error(got.String())
	}
}
