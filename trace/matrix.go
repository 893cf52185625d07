package trace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace/alike"
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
// connection to the second's port. It skips pods of the host network: they have no separate address. Pods that are alike share answers. The only
// errors are ctx's and those of pairs.Each.
func (c *Cluster) Matrix(ctx context.Context, pairs Pairs) ([]Cell, error) {
	c.world.refresh()
	clients, servers := c.matrixPods(pairs.Clients...), c.matrixPods(pairs.Servers...)
	done, all := 0, len(pairs.Ports)*2*len(clients)
	var cells []Cell
	for _, port := range pairs.Ports {
		for _, family := range []string{ipv4, ipv6} {
			pods := likeness(c, slices.Concat(clients, servers), port, family == ipv4)
			for _, from := range clients {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				list := row(pods, from, servers, port, family)
				if pairs.Each == nil {
					cells = append(cells, list...)
				} else if err := pairs.Each(list); err != nil {
					return nil, err
				}
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
	Each             func([]Cell) error  // receives each row, which Matrix then does not return; nil: Matrix returns all
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

// likeness finds the pods that share answers about a port in a family.
func likeness(c *Cluster, pods []*model.Pod, port Port, v4 bool) *alike.Pods {
	cfg := alike.Config{
		IsOrdinary: func(p *model.Pod, a netip.Addr) bool {
			n, owner := c.nodes[p.NodeName], c.world.pods[a]
			_, vip := c.world.vips[a]
			return n != nil && owner != nil && owner.ID == p.ID && !vip && c.world.nodeAddrs[a] == "" &&
				slices.ContainsFunc(n.object.PodCIDRs, func(r netip.Prefix) bool { return r.Contains(a) })
		},
		AddrOf: func(p *model.Pod) netip.Addr {
			a, _ := ofFamily(p.IPs, v4) // a pod without one is in no cell
			return a
		},
	}
	cfg.Ask = func(from, to *model.Pod) (verdict, reason string) {
		a := c.Answer(Question{From: "pod:" + from.ID.String(), To: target{cfg.AddrOf(to), port.Number}.String(), Protocol: port.Protocol.String()})
		return string(a.Verdict), cmp.Or(a.Error, a.Reason)
	}
	for _, ch := range c.world.allChanges() {
		if ch.Object != nil {
			cfg.Objects = append(cfg.Objects, ch.Object)
		}
	}
	return alike.Of(pods, cfg)
}

// row returns the cells of one client; none if it lacks the family.
func row(l *alike.Pods, from *model.Pod, pods []*model.Pod, port Port, family string) []Cell {
	if _, err := ofFamily(from.IPs, family == ipv4); err != nil {
		return nil
	}
	out := make([]Cell, 0, len(pods))
	sender, dialled := "pod:"+from.ID.String(), port.String()
	for _, to := range pods {
		if _, err := ofFamily(to.IPs, family == ipv4); from == to || err != nil {
			continue
		}
		verdict, reason := l.Answer(from, to)
		out = append(out, Cell{sender, "pod:" + to.ID.String(), dialled, family, Verdict(verdict), reason})
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
