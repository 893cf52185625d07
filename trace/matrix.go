package trace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
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
func (c *Cluster) Matrix(ctx context.Context, pairs Pairs) ([]Cell, error) {
	c.world.refresh()
	clients, servers := c.matrixPods(pairs.Clients...), c.matrixPods(pairs.Servers...)
	done, all := 0, len(pairs.Ports)*2*len(clients)
	var cells []Cell
	for _, port := range pairs.Ports {
		for _, family := range []string{ipv4, ipv6} {
			for _, from := range clients {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				cells = append(cells, c.row(from, servers, port, family)...)
				if done++; pairs.Progress != nil {
					pairs.Progress(done, all)
				}
			}
		}
	}
	return cells, nil
}

// Pairs select the questions of a matrix.
type Pairs struct {
	Ports            []Port
	Clients, Servers []string            // namespaces; none: all
	Progress         func(done, all int) // is called after each row; nil: nothing is
}

// matrixPods returns the pods of some namespaces, or of all, with a separate address on a known node, sorted by name.
func (c *Cluster) matrixPods(namespaces ...string) []*model.Pod {
	var pods []*model.Pod
	for _, p := range c.world.behind {
		if c.nodes[p.NodeName] != nil && (len(namespaces) == 0 || slices.Contains(namespaces, p.ID.Namespace)) {
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

// WriteMatrix writes a table for each port and family: a row for each client, a column for each server. A table that is wider than so many columns is
// written in parts, each with some servers; 0: any width.
func WriteMatrix(w io.Writer, cells []Cell, columns int) {
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
		writeTable(w, cells[:n], columns)
		cells = cells[n:]
	}
}

// pairTable is the table of one port and family.
type pairTable struct {
	clients, servers []string
	number           map[string]int // of a pod, from 1 on
	digits, width    int            // of a number, and of a client's name
	verdicts         map[[2]string]Verdict
}

func writeTable(w io.Writer, cells []Cell, columns int) {
	t := pairTable{number: map[string]int{}, verdicts: make(map[[2]string]Verdict, len(cells))}
	delivered := 0
	for _, c := range cells {
		t.number[c.From], t.number[c.To] = 0, 0
		t.clients, t.servers = append(t.clients, c.From), append(t.servers, c.To)
		t.width = max(t.width, len(c.From))
		t.verdicts[[2]string{c.From, c.To}] = c.Verdict
		if c.Verdict == Delivered {
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
