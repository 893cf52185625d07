// Package tally turns the flows of an agent into the decisions that staged policies would make about them, and counts them by policy.
//
// Invariant: a flow is marked only if the policies, as they are enforced, decide about it as VPP did.
package tally

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/fields"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/staged"
)

// Bounds.
const (
	// restFactor is how much longer the pause before the next reading is than the time that reading and evaluating took.
	restFactor = 20
	// mostEdges bounds the memory of sets of headers: about 250 MB.
	mostEdges = 1 << 22
	// mostPolicies bounds the rows, and the time series.
	mostPolicies = 200
	tooLarge     = 10 * time.Minute // the pause after sets that were too large
)

// Row is what one staged policy would change about the flows that an agent has seen since the policy exists. Connections that are dropped count by
// packets: nothing says how many connections they belong to.
type Row struct {
	Policy    string             `json:"policy"` // "StagedNetworkPolicy prod/web"
	Action    model.StagedAction `json:"action"`
	WouldDrop uint64             `json:"wouldDrop"` // connections that are allowed now
	WouldPass uint64             `json:"wouldPass"` // packets that are dropped now
	Same      uint64             `json:"same"`      // connections and packets with another rule and the same verdict
	Latest    string             `json:"latest,omitempty"`
	// LatestFlow has Latest as fields.
	LatestFlow *flows.Flow `json:"latestFlow,omitempty"`
}

// MarshalJSON adds the fields of the policy.
func (r Row) MarshalJSON() ([]byte, error) {
	type plain Row
	return json.Marshal(struct {
		plain
		PolicyRef *fields.Object `json:"policyRef,omitempty"`
	}{plain(r), fields.ObjectOf(r.Policy)})
}

// Tally belongs to one goroutine. The zero value counts nothing; use New.
type Tally struct {
	now     func() time.Time
	preview *staged.Preview
	version uint64 // of the objects that were read
	read    bool
	next    time.Time     // when objects may be read again
	spent   time.Duration // since they were read
	rows    map[string]*Row
	order   []string
	problem string
	recent  recent
	metrics *Metrics
}

// New returns a tally of no policies.
func New(now func() time.Time) *Tally {
	return &Tally{now: now, rows: map[string]*Row{}, recent: recent{by: map[connection]map[string]int{}}, metrics: newMetrics()}
}

// Metrics returns the metrics of the tally.
func (t *Tally) Metrics() *Metrics { return t.metrics }

// Wants reports whether Read should be called with the objects of a version: they have changed, and the pause is over.
func (t *Tally) Wants(version uint64) bool {
	return (!t.read || version != t.version) && !t.now().Before(t.next)
}

// Read reads objects. The rows of staged policies that have gone are forgotten.
func (t *Tally) Read(version uint64, objects []model.Object) {
	begin := t.now()
	t.version, t.read, t.spent, t.problem = version, true, 0, ""
	t.preview = staged.Read(objects)
	t.keepRows()
	t.spend(begin)
}

func (t *Tally) spend(begin time.Time) {
	now := t.now()
	t.spent += now.Sub(begin)
	t.next = now.Add(restFactor * t.spent)
}

// keepRows makes the rows those of the staged policies.
func (t *Tally) keepRows() {
	was := t.rows
	t.rows, t.order = map[string]*Row{}, nil
	if t.preview != nil {
		for i, p := range t.preview.Policies {
			if i == mostPolicies {
				t.problem = fmt.Sprintf("only %d of %d staged policies are counted", mostPolicies, len(t.preview.Policies))
				break
			}
			name := p.ID.String()
			r := was[name]
			if r == nil {
				r = &Row{Policy: name}
			}
			r.Action = p.StagedAction()
			t.rows[name], t.order = r, append(t.order, name)
		}
	}
	for name := range was {
		if t.rows[name] == nil {
			t.metrics.forgetPolicy(name)
		}
	}
}

// Mark notes in a flow what staged policies would decide about it, and counts it. The header is that of the flow's packets between its two ends.
func (t *Tally) Mark(f *flows.Flow, h space.Header) {
	end, egress := &f.Source, f.Direction == "egress"
	if !egress {
		end = &f.Destination
	}
	if t.preview == nil || f.Direction == "" || end.Kind != flows.Pod || f.Destination.Kind == flows.Service {
		return
	}
	begin := t.now()
	o, known := t.preview.Decide(model.PodID{Namespace: end.Namespace, Name: end.Name}, egress, h)
	t.spend(begin)
	if t.preview.Size() > mostEdges {
		t.preview, t.problem, t.next = nil, "staged policies are not evaluated: their sets of headers are too large", t.now().Add(tooLarge)
		t.read = false
	}
	if !known || !o.Changes() || o.Now.Doubt+o.Then.Doubt != "" || o.Now.Allowed != (f.Verdict == flows.Allowed) {
		return
	}
	f.Decision.Staged = decisionOf(&o)
	if f.Verdict == flows.Dropped || !t.recent.again(h, egress, f.SeenBy) {
		t.countFlow(f)
	}
}

func decisionOf(o *staged.Outcome) *flows.Staged {
	s := &flows.Staged{Verdict: flows.Dropped, By: o.By.ID.String(), Text: o.Then.Text, Tier: o.Then.Tier, Rule: o.Then.Rule}
	if o.Then.Allowed {
		s.Verdict = flows.Allowed
	}
	if len(o.Then.Policies) > 0 {
		s.Policy = o.Then.Policies[0].ID.String()
	}
	return s
}

func (t *Tally) countFlow(f *flows.Flow) {
	r := t.rows[f.Decision.Staged.By]
	n := f.Connections
	if f.Verdict == flows.Dropped {
		n = f.Packets
	}
	if r == nil || n == 0 {
		return
	}
	change := f.WouldChange()
	switch change {
	case flows.Dropped:
		r.WouldDrop += n
	case flows.Allowed:
		r.WouldPass += n
	default:
		r.Same += n
		return
	}
	latest := *f
	r.Latest, r.LatestFlow = f.String(), &latest
	t.metrics.countChange(r.Policy, change, n)
}

// Rows returns the rows in the order of the policies, and what is missing in them, or "".
func (t *Tally) Rows() (list []Row, problem string) {
	for _, name := range t.order {
		list = append(list, *t.rows[name])
	}
	return slices.Clip(list), t.problem
}
