package ui

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"html/template"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/ui/graph"
	"github.com/contiv-agent/contiv-agent/ui/watch"
	"github.com/contiv-agent/contiv-agent/verify/intent"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

// templateTexts are the functions of the templates.
func templateTexts(now func() time.Time) template.FuncMap {
	return template.FuncMap{
		"clock":   func(t time.Time) string { return t.Local().Format(time.TimeOnly) },
		"ago":     func(t time.Time) string { return ageText(now().Sub(t)) },
		"bytes":   bytesText,
		"dropped": func(v flows.Verdict) bool { return v == flows.Dropped },
		"port":    endText,
		"rule":    ruleAddress,
		"ask":     traceAddress,
		"edge":    edgeAddress,
		"path":    curveText,
		"width":   lineWidth,
		"short":   shortText,
		"id":      hashText,
		"groups":  change.GroupsText,
		"example": exampleAddress,
		"of":      vertexAddress,
		"n":       countText,
		"fit":     fitWidth,
		"limit":   func(n int) int { return min(n, 20) },
		"mid":     func(e *graph.Edge) graph.Point { return e.Middle() },
		"add":     func(a, b float64) float64 { return a + b },
		"kind":    func(v *graph.Vertex) string { return kindText(v) },
		"join":    func(list []string) string { return strings.Join(list, ", ") },
	}
}

func ageText(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h ago", int(d.Hours()))
}

func bytesText(n uint64) string {
	const unit = 1000
	value := float64(n)
	for _, name := range []string{"B", "kB", "MB", "GB"} {
		if value < unit {
			return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + " " + name
		}
		value /= unit
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " TB"
}

// countText writes a number with its noun: "1 pod", "2 pods".
func countText(n any, noun string) string {
	text := fmt.Sprint(n)
	switch {
	case text == "1":
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	default:
		noun += "s"
	}
	return text + " " + noun
}

// endText is an end of a flow with its port.
func endText(p flows.Peer, port uint16) string {
	switch {
	case port == 0:
		return p.String()
	case p.Kind == flows.Outside:
		return netip.AddrPortFrom(p.Address, port).String()
	}
	return fmt.Sprintf("%s:%d", p, port)
}

// ruleAddress is the page of the pod whose policies decided about a flow, with the rule marked; "": no pod's did.
func ruleAddress(f watch.Flow) string {
	p := &f.Destination
	if f.Direction == "egress" {
		p = &f.Source
	}
	if f.Direction == "" || p.Kind != flows.Pod {
		return ""
	}
	q := url.Values{"pod": {p.Namespace + "/" + p.Name}, "direction": {f.Direction}}
	if f.Decision.Policy != "" {
		q.Set("policy", f.Decision.Policy)
	}
	if f.Decision.Rule != "" {
		q.Set("rule", f.Decision.Rule)
	}
	return "/policy?" + q.Encode() + "#rule"
}

// traceAddress is the page that traces the first packet of a flow; "": the trace command has no question for it.
func traceAddress(f watch.Flow) string {
	q := url.Values{"protocol": {f.Protocol}}
	switch s := &f.Source; s.Kind {
	case flows.Pod:
		q.Set("from", "pod:"+s.Namespace+"/"+s.Name)
	case flows.Node:
		q.Set("from", "node:"+s.Name)
	case flows.Outside:
		q.Set("from", "external:"+s.Address.String()+"@"+f.Node)
	default:
		return ""
	}
	port := ""
	if f.Port != 0 {
		port = ":" + strconv.Itoa(int(f.Port))
	}
	switch d := &f.Destination; {
	case f.Translation != nil:
		q.Set("to", f.Translation.Dialled.String())
	case d.Kind == flows.Pod:
		q.Set("to", "pod:"+d.Namespace+"/"+d.Name+port)
	case d.Kind == flows.Service:
		q.Set("to", "service:"+d.Namespace+"/"+d.Name+port)
	case port == "":
		q.Set("to", d.Address.String())
	default:
		q.Set("to", netip.AddrPortFrom(d.Address, f.Port).String())
	}
	return "/trace?" + q.Encode()
}

func edgeAddress(e *graph.Edge) string {
	q := url.Values{"from": {e.From}, "to": {e.To}, "verdict": {string(flows.Allowed)}}
	if e.Denied {
		q.Set("verdict", string(flows.Dropped))
	}
	return "/edge?" + q.Encode()
}

// vertexAddress is the page with the flows of a vertex; "": they have no common filter.
func vertexAddress(v *graph.Vertex) string {
	switch v.Kind {
	case graph.Workload, graph.Service:
		return "/flows?" + url.Values{"peer": {v.Namespace + "/" + v.Name}}.Encode()
	case graph.Namespace:
		return "/flows?" + url.Values{"peer": {v.Name}}.Encode()
	}
	return ""
}

// exampleAddress is the page that traces an example; "": it has no question.
func exampleAddress(e *intent.Example) string {
	if e == nil {
		return ""
	}
	from, to, protocol := questionOf(e.Trace)
	if from == "" {
		return ""
	}
	return "/trace?" + url.Values{"from": {from}, "to": {to}, "protocol": {protocol}}.Encode()
}

// questionOf reads a question of the trace command.
func questionOf(line string) (from, to, protocol string) {
	var q struct{ From, To, Protocol string }
	if json.Unmarshal([]byte(line), &q) != nil {
		return "", "", ""
	}
	return q.From, q.To, q.Protocol
}

func curveText(e *graph.Edge) string {
	c := &e.Curve
	return fmt.Sprintf("M%.0f %.1f C%.0f %.1f %.0f %.1f %.0f %.1f", c[0].X, c[0].Y, c[1].X, c[1].Y, c[2].X, c[2].Y, c[3].X, c[3].Y)
}

// lineWidth grows with the logarithm of the connections.
func lineWidth(e *graph.Edge) string {
	return strconv.FormatFloat(min(1.5+0.6*math.Log2(1+float64(e.Connections)), 9), 'f', 1, 64)
}

// fitWidth is the width at which a map is shown: that of a usual window if the map is not much wider.
func fitWidth(m *graph.Map) int { return int(max(m.W*0.72, min(m.W, 1150))) }

const shortLength = 22

// shortText cuts a name to the width of a box. The title and the table below the map have the whole name.
func shortText(name string) string {
	runes := []rune(name)
	if len(runes) <= shortLength {
		return name
	}
	return string(runes[:shortLength-9]) + "…" + string(runes[len(runes)-8:])
}

func kindText(v *graph.Vertex) string {
	switch v.Kind {
	case graph.Workload, graph.Namespace:
		return countText(v.Members, "pod")
	case graph.Outside:
		return countText(v.Members, "address")
	case graph.Others:
		return "with the least traffic"
	}
	return v.Kind
}

// hashText is an identifier of an element that stays the same in every event.
func hashText(parts ...any) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, parts...) // a hash returns no error
	return "i" + strconv.FormatUint(h.Sum64(), 36)
}
