package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/ui/graph"
	"github.com/contiv-agent/contiv-agent/ui/reach"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

// mostRows bounds the rows of a table of flows.
const mostRows = 200

// views are all pages, those of the menu in its order.
func (s *Server) views() []*view {
	return []*view{
		{name: "map", title: "Map", menu: true, live: true, data: s.mapData},
		{name: "flows", title: "Flows", menu: true, live: true, data: s.flowData},
		{name: "matrix", title: "Matrix", menu: true, live: true, data: s.matrixData},
		{name: "whatif", title: "What if", menu: true, data: s.trialData},
		{name: "nodes", title: "Nodes", menu: true, live: true, data: s.nodeData},
		{name: "edge", title: "Connections", live: true, data: s.edgeData},
		{name: "policy", title: "Policies of a pod", data: s.policyData},
		{name: "trace", title: "Trace", menu: true, data: s.traceData},
	}
}

func (s *Server) viewOf(name string) *view {
	for _, v := range s.views() {
		if v.name == name {
			return v
		}
	}
	panic("ui: no view " + name)
}

// selection is the flows that a request asks for.
type selection struct {
	flows.Filter
	Peer, Text string
}

func readSelection(r *http.Request) (*selection, error) {
	q := r.URL.Query()
	f, err := flows.ParseFilter(q)
	if err == nil {
		err = (&flows.Filter{From: q.Get("peer")}).Validate()
	}
	if err != nil {
		return nil, &userError{err}
	}
	return &selection{*f, q.Get("peer"), strings.TrimSpace(q.Get("text"))}, nil
}

func (f *selection) selects(flow *watch.Flow) bool {
	if !f.Matches(&flow.Flow) {
		return false
	}
	if f.Peer != "" && !(&flows.Filter{From: f.Peer}).Matches(&flow.Flow) && !(&flows.Filter{To: f.Peer}).Matches(&flow.Flow) {
		return false
	}
	return f.Text == "" || strings.Contains(strings.ToLower(flow.Flow.String()), strings.ToLower(f.Text))
}

// notice is what a page says about missing flows.
type notice struct {
	Waiting   bool // no round has ended yet
	Problem   string
	Silent    []string // nodes without flows, each with the reason
	Forgotten uint64
}

func noticeOf(s *watch.Snapshot) notice {
	n := notice{Waiting: s.At.IsZero(), Problem: s.Problem, Forgotten: s.Forgotten}
	for i := range s.Nodes {
		at := &s.Nodes[i]
		for _, why := range []string{at.Problem, at.FlowProblem} {
			if why != "" {
				n.Silent = append(n.Silent, at.Name+": "+why)
			}
		}
		for _, source := range at.Sources {
			if source.Problem != "" {
				n.Silent = append(n.Silent, at.Name+": "+source.Name+": "+source.Problem)
			}
		}
	}
	return n
}

type flowPage struct {
	Notice    notice
	Selection *selection
	Flows     []watch.Flow
	More      int // flows that the table has no row for
	All       int
}

func (s *Server) flowData(r *http.Request, snap *watch.Snapshot) (any, error) {
	sel, err := readSelection(r)
	if err != nil {
		return nil, err
	}
	p := &flowPage{Notice: noticeOf(snap), Selection: sel, All: len(snap.Flows)}
	for i := range snap.Flows {
		if sel.selects(&snap.Flows[i]) {
			p.Flows = append(p.Flows, snap.Flows[i])
		}
	}
	p.cutRows()
	return p, nil
}

func (p *flowPage) cutRows() {
	if len(p.Flows) > mostRows {
		p.More = len(p.Flows) - mostRows
		p.Flows = p.Flows[:mostRows]
	}
}

type mapPage struct {
	Notice notice
	Map    *graph.Map
	// Names has the text of each vertex.
	Names   map[string]string
	Toggled []string
	Only    string // namespace
	All     []string
}

// namesOf returns the namespaces of flows, sorted.
func namesOf(list []watch.Flow) (out []string) {
	known := map[string]bool{}
	for i := range list {
		for _, name := range []string{list[i].Source.Namespace, list[i].Destination.Namespace} {
			if name != "" && !known[name] {
				known[name] = true
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (s *Server) mapData(r *http.Request, snap *watch.Snapshot) (any, error) {
	q := r.URL.Query()
	p := &mapPage{Notice: noticeOf(snap), Names: map[string]string{}, Only: q.Get("namespace"), All: namesOf(snap.Flows)}
	for name := range strings.SplitSeq(q.Get("toggle"), ",") {
		if name != "" && !slices.Contains(p.Toggled, name) {
			p.Toggled = append(p.Toggled, name)
		}
	}
	list := snap.Flows
	if p.Only != "" {
		sel := selection{Peer: p.Only}
		if err := (&flows.Filter{From: p.Only}).Validate(); err != nil {
			return nil, &userError{err}
		}
		list = nil
		for i := range snap.Flows {
			if sel.selects(&snap.Flows[i]) {
				list = append(list, snap.Flows[i])
			}
		}
	}
	p.Map = graph.Of(list, graph.Options{Toggled: p.Toggled, Now: s.Now()})
	for _, v := range p.Map.Vertices {
		p.Names[v.ID] = nameOfVertex(v)
	}
	return p, nil
}

// nameOfVertex is the text of a vertex, with its kind unless that is obvious.
func nameOfVertex(v *graph.Vertex) string {
	switch v.Kind {
	case graph.Workload:
		return v.Namespace + "/" + v.Name
	case graph.Service:
		return "service " + v.Namespace + "/" + v.Name
	case graph.Outside:
		return "outside"
	case graph.Others:
		return v.Name
	}
	return v.Kind + " " + v.Name
}

// Toggle is the address of the map after a namespace is opened or closed.
func (p *mapPage) Toggle(namespace string) string {
	list := slices.Clone(p.Toggled)
	if at := slices.Index(list, namespace); at >= 0 {
		list = slices.Delete(list, at, at+1)
	} else {
		list = append(list, namespace)
	}
	slices.Sort(list)
	q := url.Values{}
	if len(list) > 0 {
		q.Set("toggle", strings.Join(list, ","))
	}
	if p.Only != "" {
		q.Set("namespace", p.Only)
	}
	return "/?" + q.Encode()
}

type edgePage struct {
	flowPage
	From, To string
	Denied   bool
}

func (s *Server) edgeData(r *http.Request, snap *watch.Snapshot) (any, error) {
	q := r.URL.Query()
	p := &edgePage{From: q.Get("from"), To: q.Get("to"), Denied: q.Get("verdict") == string(flows.Dropped)}
	if p.From == "" || p.To == "" {
		return nil, wrongRequest("from and to: both ends of an edge are required")
	}
	p.Notice, p.All = noticeOf(snap), len(snap.Flows)
	p.Flows = graph.Between(snap.Flows, p.From, p.To, p.Denied)
	p.cutRows()
	return p, nil
}

type policyPage struct {
	*policy.Description
	// Policy and Rule are those that the page marks: "NetworkPolicy prod/web", "ingress rule 2". Without a rule it marks the end of the policy's tier
	// in this direction.
	Policy, Rule, Direction string
}

// sideOfPod is one direction of a policyPage.
type sideOfPod struct {
	Page      *policyPage
	Direction string // ingress or egress
	Tiers     []policy.Tier
}

// Side is the data of one direction.
func (p *policyPage) Side(direction string) *sideOfPod {
	if direction == "ingress" {
		return &sideOfPod{p, direction, p.Ingress}
	}
	return &sideOfPod{p, direction, p.Egress}
}

// Rule reports whether the page marks a rule.
func (s *sideOfPod) Rule(policy, rule string) bool {
	return s.Page.Policy == policy && s.Page.Rule == rule
}

// End reports whether the page marks the end of a tier: one of its policies applies, and no rule matches.
func (s *sideOfPod) End(t policy.Tier) bool {
	return s.Page.Rule == "" && s.Page.Direction == s.Direction && slices.ContainsFunc(t.Policies, func(p policy.Policy) bool { return p.Object == s.Page.Policy })
}

func (s *Server) policyData(r *http.Request, _ *watch.Snapshot) (any, error) {
	q := r.URL.Query()
	namespace, name, ok := strings.Cut(q.Get("pod"), "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, wrongRequest("pod %q: want NAMESPACE/POD", q.Get("pod"))
	}
	d, err := s.Watcher.Policy(r.Context(), model.PodID{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return &policyPage{d, q.Get("policy"), q.Get("rule"), q.Get("direction")}, nil
}

type nodePage struct {
	Notice notice
	Nodes  []watch.Node
}

func (s *Server) nodeData(_ *http.Request, snap *watch.Snapshot) (any, error) {
	return &nodePage{noticeOf(snap), snap.Nodes}, nil
}

// errNoObjects is the answer to questions if the page has no objects.
var errNoObjects = errors.New("this page has no objects of the cluster: start it with --manifests or --kubeconfig, or as kubectl contiv ui")

type matrixPage struct {
	*reach.Matrix
	// Row and Column are the chosen cell; Cell is nil if none is chosen.
	Row, Column string
	Cell        *reach.Cell
	// Seen is what was seen from a row to a column.
	Seen map[[2]string]graph.Traffic
}

// SeenAt is what was seen from one name to another.
func (p *matrixPage) SeenAt(from, to string) graph.Traffic { return p.Seen[[2]string{from, to}] }

// Unfinished reports that rows are missing.
func (p *matrixPage) Unfinished() bool { return !p.Whole() }

// At returns a cell; nil: its row is not calculated yet.
func (p *matrixPage) At(i, j int) *reach.Cell {
	if i < len(p.Cells) {
		return &p.Cells[i][j]
	}
	return nil
}

const (
	// matrixAge is how long a matrix is shown before a page makes one of the present objects.
	matrixAge = 30 * time.Second
	// matrixSlice is how long a request calculates rows before it answers with those that exist.
	matrixSlice = time.Second
)

// matrixData returns the matrix, with as many rows as a short time allows. Events continue it.
func (s *Server) matrixData(r *http.Request, snap *watch.Snapshot) (any, error) {
	q := r.URL.Query()
	p := &matrixPage{Row: q.Get("from"), Column: q.Get("to"), Seen: graph.ByNamespace(snap.Flows)}
	isEvent := strings.HasPrefix(r.URL.Path, "/events/")
	err := s.work(r.Context(), func(ctx context.Context, last *lastMatrix) error {
		begin := s.Now()
		if last.work == nil || !isEvent && begin.Sub(last.at) >= matrixAge {
			objects, err := s.Objects(ctx)
			if err != nil {
				return err
			}
			last.work, last.at = reach.Begin(objects, s.Now), begin
		}
		for !last.work.Matrix().Whole() {
			if err := last.work.Row(ctx); err != nil {
				return err
			}
			if s.Now().Sub(begin) >= matrixSlice {
				break
			}
		}
		return nil
	}, func(last *lastMatrix) { p.Matrix = last.work.Matrix() })
	if err != nil {
		return nil, err
	}
	i, j := slices.Index(p.Names, p.Row), slices.Index(p.Names, p.Column)
	if i >= 0 && j >= 0 {
		p.Cell = p.At(i, j)
	}
	return p, nil
}

// work calls do and then after with the last matrix, for one request at a time: such answers keep a core busy.
func (s *Server) work(ctx context.Context, do func(context.Context, *lastMatrix) error, after func(*lastMatrix)) error {
	if s.Objects == nil {
		return errNoObjects
	}
	ctx, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	select {
	case last := <-s.turn:
		defer func() { s.turn <- last }()
		if err := do(ctx, last); err != nil {
			return err
		}
		after(last)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type trialPage struct {
	Text  string
	Trial *reach.Trial // nil: no policy is given yet
	Error string
}

func (s *Server) trialData(r *http.Request, _ *watch.Snapshot) (any, error) {
	if s.Objects == nil {
		return nil, errNoObjects
	}
	p := &trialPage{}
	if r.Method != http.MethodPost {
		return p, nil
	}
	if err := r.ParseForm(); err != nil {
		return nil, &userError{err}
	}
	p.Text = r.PostFormValue("policy")
	err := s.work(r.Context(), func(ctx context.Context, _ *lastMatrix) error {
		objects, err := s.Objects(ctx)
		if err != nil {
			return err
		}
		p.Trial, err = reach.Try(objects, manifest.Parse("policy", []byte(p.Text)))
		return err
	}, func(*lastMatrix) {})
	if errors.Is(err, reach.ErrNoPolicy) {
		p.Error, err = err.Error(), nil
	}
	return p, err
}

type tracePage struct {
	From, To, Protocol  string
	Verdict, Text, Fail string
}

func (s *Server) traceData(r *http.Request, _ *watch.Snapshot) (any, error) {
	if s.Trace == nil {
		return nil, errNoObjects
	}
	q := r.URL.Query()
	p := &tracePage{From: strings.TrimSpace(q.Get("from")), To: strings.TrimSpace(q.Get("to")), Protocol: cmp.Or(q.Get("protocol"), "TCP")}
	if p.From == "" && p.To == "" {
		return p, nil
	}
	err := s.work(r.Context(), func(ctx context.Context, _ *lastMatrix) (err error) {
		p.Verdict, p.Text, err = s.Trace(ctx, p.From, p.To, p.Protocol)
		return err
	}, func(*lastMatrix) {})
	if err != nil {
		p.Fail = err.Error()
	}
	return p, nil
}
