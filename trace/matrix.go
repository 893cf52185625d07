package trace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// Port is the port that a matrix dials on every pod; Number is 0 for ICMP.
type Port struct {
	Number   uint16
	Protocol model.Protocol
}

// String returns "80/TCP", or "ICMP".
func (p Port) String() string {
	if p.Protocol == model.ICMP {
		return p.Protocol.String()
	}
	return strconv.Itoa(int(p.Number)) + "/" + p.Protocol.String()
}

// ParsePort reads the output of String; case does not matter.
func ParsePort(s string) (Port, error) {
	number, name, found := strings.Cut(s, "/")
	if !found {
		number, name = "", number
	}
	proto, err := model.ParseProtocol(strings.ToUpper(name))
	switch {
	case err != nil:
		return Port{}, fmt.Errorf("port %q: want <number>/<protocol> or ICMP: %w", s, err)
	case proto == model.ICMP && found:
		return Port{}, fmt.Errorf("port %q: ICMP has no ports", s)
	case proto == model.ICMP:
		return Port{Protocol: proto}, nil
	case !found:
		return Port{}, fmt.Errorf("port %q: want <number>/<protocol>", s)
	}
	n, err := parsePort(number)
	if err != nil {
		return Port{}, err
	}
	return Port{Number: n, Protocol: proto}, nil
}

// Cell is one pair of pods and one port of a matrix; its JSON form is a line of trace --matrix -o json.
type Cell struct {
	From    string  `json:"from"` // pod:<ns>/<name>
	To      string  `json:"to"`   // pod:<ns>/<name>
	Port    string  `json:"port"` // 80/TCP, or ICMP
	Family  string  `json:"family"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
}

// Values of Cell.Family.
const (
	ipv4 = "IPv4"
	ipv6 = "IPv6"
)

// Matrix evaluates for every ordered pair of different pods, in each family that both have, whether the first can open a
// connection to the second's port. It skips pods of the host network: they have no separate address. The only error is
// ctx's.
func (c *Cluster) Matrix(ctx context.Context, ports []Port) ([]Cell, error) {
	c.world.refresh()
	pods := c.matrixPods()
	var cells []Cell
	for _, port := range ports {
		for _, family := range []string{ipv4, ipv6} {
			for _, from := range pods {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				cells = append(cells, c.row(from, pods, port, family)...)
			}
		}
	}
	return cells, nil
}

// matrixPods returns the pods with a separate address on a known node, sorted by name.
func (c *Cluster) matrixPods() []*model.Pod {
	var pods []*model.Pod
	for _, p := range c.world.behind {
		if c.nodes[p.NodeName] != nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *model.Pod) int { return a.ID.Compare(b.ID) })
	return pods
}

// row returns the cells of one client; none if it lacks the family.
func (c *Cluster) row(from *model.Pod, pods []*model.Pod, port Port, family string) []Cell {
	if _, err := ofFamily(from.IPs, family == ipv4); err != nil {
		return nil
	}
	var out []Cell
	for _, to := range pods {
		dst, err := ofFamily(to.IPs, family == ipv4)
		if from == to || err != nil {
			continue
		}
		q := Question{From: "pod:" + from.ID.String(), To: target{dst, port.Number}.String(), Protocol: port.Protocol.String()}
		a := c.Answer(q)
		out = append(out, Cell{
			From: q.From, To: "pod:" + to.ID.String(), Port: port.String(), Family: family,
			Verdict: a.Verdict, Reason: cmp.Or(a.Error, a.Reason),
		})
	}
	return out
}

// Difference is a connection that is possible in only one of two matrices.
type Difference struct {
	Cell           // with verdict and reason of the later matrix
	Before Verdict `json:"before"` // "" if a pod or the port was missing
	Why    string  `json:"why"`    // the reason of the earlier matrix, or which pod was missing
	Gained bool    `json:"gained"` // becomes possible; false: stops
}

// ask is the question of a cell, without its answer.
type ask struct{ from, to, port, family string }

func (c Cell) ask() ask { return ask{c.From, c.To, c.Port, c.Family} }

// Compare returns the connections that become possible, in the order of after, and then those that stop because a pod is
// missing. A pod that is in only one matrix can be reached in that one only.
func Compare(before, after []Cell) []Difference {
	old, now := index(before), index(after)
	were, are := parties(before), parties(after)
	var out []Difference
	for _, c := range after {
		was, there := old[c.ask()]
		if !there {
			was.Reason = absent(c, were)
		}
		if (c.Verdict == Delivered) != (was.Verdict == Delivered) {
			out = append(out, Difference{Cell: c, Before: was.Verdict, Why: was.Reason, Gained: c.Verdict == Delivered})
		}
	}
	for _, was := range before {
		if _, there := now[was.ask()]; !there && was.Verdict == Delivered {
			gone := Cell{From: was.From, To: was.To, Port: was.Port, Family: was.Family, Reason: absent(was, are)}
			out = append(out, Difference{Cell: gone, Before: was.Verdict, Why: was.Reason})
		}
	}
	return out
}

func index(cells []Cell) map[ask]Cell {
	out := make(map[ask]Cell, len(cells))
	for _, c := range cells {
		out[c.ask()] = c
	}
	return out
}

// party is a pod in one family.
type party struct{ name, family string }

func parties(cells []Cell) map[party]bool {
	out := map[party]bool{}
	for _, c := range cells {
		out[party{c.From, c.Family}], out[party{c.To, c.Family}] = true, true
	}
	return out
}

// absent returns which party of a cell a matrix lacks.
func absent(c Cell, present map[party]bool) string {
	for _, name := range []string{c.From, c.To} {
		if !present[party{name, c.Family}] {
			return fmt.Sprintf("%s does not exist, or has no %s address", name, c.Family)
		}
	}
	return "not asked for"
}

// WriteMatrix writes a table for each port and family: a row for each client, a column for each server.
func WriteMatrix(w io.Writer, cells []Cell) {
	if len(cells) == 0 {
		fmt.Fprintln(w, "no two pods to ask about")
		return
	}
	fmt.Fprintln(w, "+ delivered  x dropped  r rejected  ? cannot be asked; rows are clients, columns are servers")
	for len(cells) > 0 {
		first := cells[0]
		n := slices.IndexFunc(cells, func(c Cell) bool { return c.Port != first.Port || c.Family != first.Family })
		if n < 0 {
			n = len(cells)
		}
		writeTable(w, cells[:n])
		cells = cells[n:]
	}
}

func writeTable(w io.Writer, cells []Cell) {
	names := map[string]bool{}
	verdicts := make(map[[2]string]Verdict, len(cells))
	delivered := 0
	for _, c := range cells {
		names[c.From], names[c.To] = true, true
		verdicts[[2]string{c.From, c.To}] = c.Verdict
		if c.Verdict == Delivered {
			delivered++
		}
	}
	sorted := make([]string, 0, len(names))
	width := 0
	for name := range names {
		sorted = append(sorted, name)
		width = max(width, len(name))
	}
	slices.Sort(sorted)
	digits := len(strconv.Itoa(len(sorted)))
	fmt.Fprintf(w, "\n%s %s: %d of %d\n%*s", cells[0].Port, cells[0].Family, delivered, len(cells), digits+1+width, "")
	for i := range sorted {
		fmt.Fprintf(w, " %*d", digits, i+1)
	}
	fmt.Fprintln(w)
	for i, from := range sorted {
		fmt.Fprintf(w, "%*d %-*s", digits, i+1, width, from)
		for _, to := range sorted {
			fmt.Fprintf(w, " %*s", digits, mark(verdicts, from, to))
		}
		fmt.Fprintln(w)
	}
}

func mark(verdicts map[[2]string]Verdict, from, to string) string {
	v, asked := verdicts[[2]string{from, to}]
	switch {
	case !asked:
		return "."
	case v == Delivered:
		return "+"
	case v == Dropped:
		return "x"
	case v == Rejected:
		return "r"
	}
	return "?"
}

// WriteDifferences writes a line for each difference: + becomes possible, - stops; with the reasons before and after.
func WriteDifferences(w io.Writer, diffs []Difference) {
	if len(diffs) == 0 {
		fmt.Fprintln(w, "the same connections are possible")
		return
	}
	for _, d := range diffs {
		sign := "-"
		if d.Gained {
			sign = "+"
		}
		fmt.Fprintf(w, "%s %s -> %s %s %s\n    before: %s\n    after:  %s\n", sign, d.From, d.To, d.Port, d.Family,
			said(d.Before, d.Why), said(d.Verdict, d.Reason))
	}
}

func said(v Verdict, reason string) string {
	if v == "" || strings.HasPrefix(reason, string(v)) {
		return reason
	}
	return string(v) + ": " + reason
}
