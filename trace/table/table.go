// Package table turns the cells of a matrix into tables for people.
//
// Invariant: each cell is one mark, and no line of a table is wider than the terminal.
package table

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/trace"
)

// Write writes a table for each port and family: a row for each client, a column for each server. A table that is wider than so many columns is
// written in parts, each with some servers; 0: any width.
func Write(w io.Writer, cells []trace.Cell, columns int) {
	if len(cells) == 0 {
		fmt.Fprintln(w, "no two pods to ask about")
		return
	}
	fmt.Fprintln(w, "+ delivered  x dropped  r rejected  ? cannot be asked; rows are clients, columns are servers")
	for len(cells) > 0 {
		first := cells[0]
		n := slices.IndexFunc(cells, func(c trace.Cell) bool { return c.Port != first.Port || c.Family != first.Family })
		if n < 0 {
			n = len(cells)
		}
		writeTable(w, cells[:n], columns)
		cells = cells[n:]
	}
}

// pairTable is the table of one port and family.
type pairTable struct {
	clients, servers []string
	number           map[string]int // of a pod, from 1 on
	digits, width    int            // of a number, and of a client's name
	verdicts         map[[2]string]trace.Verdict
}

func writeTable(w io.Writer, cells []trace.Cell, columns int) {
	t := pairTable{number: map[string]int{}, verdicts: make(map[[2]string]trace.Verdict, len(cells))}
	delivered := 0
	for _, c := range cells {
		t.number[c.From], t.number[c.To] = 0, 0
		t.clients, t.servers = append(t.clients, c.From), append(t.servers, c.To)
		t.width = max(t.width, len(c.From))
		t.verdicts[[2]string{c.From, c.To}] = c.Verdict
		if c.Verdict == trace.Delivered {
			delivered++
		}
	}
	pods := slices.Sorted(maps.Keys(t.number))
	for i, name := range pods {
		t.number[name] = i + 1
	}
	for _, list := range []*[]string{&t.clients, &t.servers} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	t.digits = len(strconv.Itoa(len(pods)))
	fmt.Fprintf(w, "\n%s %s: %d of %d\n", cells[0].Port, cells[0].Family, delivered, len(cells))
	silent := slices.ContainsFunc(t.servers, func(name string) bool { return !slices.Contains(t.clients, name) })
	if named := columns == 0 || t.width <= columns/2; !named || silent { // rows do not name every server
		for i, name := range pods {
			fmt.Fprintf(w, "%*d %s\n", t.digits, i+1, name)
		}
		if fmt.Fprintln(w); !named {
			t.width = 0
		}
	}
	part := len(t.servers)
	if columns > 0 {
		part = max((columns-t.digits-1-t.width)/(t.digits+1), 1)
	}
	for at := 0; at < len(t.servers); at += part {
		if at > 0 {
			fmt.Fprintln(w)
		}
		t.writeServers(w, t.servers[at:min(at+part, len(t.servers))])
	}
}

// writeServers writes the columns of some servers.
func (t *pairTable) writeServers(w io.Writer, servers []string) {
	left := t.digits
	if t.width > 0 {
		left += 1 + t.width
	}
	fmt.Fprintf(w, "%*s", left, "")
	for _, to := range servers {
		fmt.Fprintf(w, " %*d", t.digits, t.number[to])
	}
	fmt.Fprintln(w)
	for _, from := range t.clients {
		fmt.Fprintf(w, "%*d", t.digits, t.number[from])
		if t.width > 0 {
			fmt.Fprintf(w, " %-*s", t.width, from)
		}
		for _, to := range servers {
			fmt.Fprintf(w, " %*s", t.digits, mark(t.verdicts, from, to))
		}
		fmt.Fprintln(w)
	}
}

func mark(verdicts map[[2]string]trace.Verdict, from, to string) string {
	v, asked := verdicts[[2]string{from, to}]
	switch {
	case !asked:
		return "."
	case v == trace.Delivered:
		return "+"
	case v == trace.Dropped:
		return "x"
	case v == trace.Rejected:
		return "r"
	}
	return "?"
}
