package intent

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent/ask"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
)

// Verdict is the result of an assertion.
type Verdict string

// The verdicts.
const (
	Holds     Verdict = "holds"
	Violated  Verdict = "violated"
	Undecided Verdict = "not decided"
)

// Report is the results of all assertions.
type Report struct {
	// Verdict is Holds if every assertion holds, and Violated if one is.
	Verdict Verdict  `json:"verdict"`
	Results []Result `json:"assertions"`
	// Pods and Classes say how many pods there are, and how many of them policies distinguish.
	Pods    int `json:"pods"`
	Classes int `json:"classes"`
}

// Result is the result of one assertion.
type Result struct {
	Name    string   `json:"name,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Kind    ask.Kind `json:"kind"`
	Demand  string   `json:"assertion"`
	From    string   `json:"from"` // the sides of Demand
	To      string   `json:"to"`
	Verdict Verdict  `json:"verdict"`
	// Why is the reason for Undecided.
	Why string `json:"why,omitempty"`
	// Example is a packet that violates the assertion; nil unless the verdict is Violated.
	Example *Example `json:"counterexample,omitempty"`
}

// Check evaluates assertions.
func (c *Cluster) Check(list []ask.Assertion) *Report {
	r := &Report{Verdict: Holds, Results: []Result{}, Pods: len(c.Full.Pods), Classes: len(c.Classes)}
	for i := range list {
		one := c.check(&list[i])
		if one.Verdict == Violated || r.Verdict == Holds {
			r.Verdict = one.Verdict
		}
		r.Results = append(r.Results, one)
	}
	return r
}

func (c *Cluster) check(a *ask.Assertion) Result {
	r := Result{Name: a.Name, Reason: a.Reason, Kind: a.Kind, Demand: a.String(), From: a.From.Text, To: a.To.Text, Verdict: Undecided}
	from, err := c.find(a.From, false)
	if err != nil {
		r.Why = err.Error()
		return r
	}
	to, err := c.find(a.To, true)
	if err != nil {
		r.Why = err.Error()
		return r
	}
	s := c.Space
	region := s.Intersect(s.Minus(s.Intersect(s.Union(from.pods, from.hosts), s.Union(to.pods, to.hosts)), s.Intersect(from.hosts, to.hosts)), c.fresh)
	others := s.Complement(c.toThemselves(from, to))
	wrong := meeting{{s.Intersect(region, from.may), to.may, others}}
	if a.Kind == ask.Always {
		wrong = meeting{{s.Minus(region, from.may), others}, {s.Minus(region, to.may), others}}
	}
	_, some := space.Common(s, region, others)
	_, violated := wrong.header(s, s.All())
	switch {
	case !some:
		r.Why = "no packet can go from the left side to the right side: they have no addresses of one family, are one pod, or neither has a pod"
	case from.doubt != "" || to.doubt != "":
		r.Why = from.doubt
		if r.Why == "" {
			r.Why = to.doubt
		}
	case violated:
		r.Verdict, r.Example = Violated, c.example(wrong, from, to)
	case a.Kind == ask.Always && c.hostsForward():
		r.Why = fmt.Sprintf("%s may deny packets that its node forwards", c.Full.Hosts[0].Ref())
	default:
		r.Verdict = Holds
	}
	return r
}

// toThemselves is the headers that the sides select only from a pod to itself: such packets pass regardless of policies.
func (c *Cluster) toThemselves(from, to *side) (set space.Set) {
	right := map[*Class]*pick{}
	for i := range to.picks {
		right[to.picks[i].class] = &to.picks[i]
	}
	var sets []space.Set
	for _, p := range from.picks {
		q := right[p.class]
		if q == nil {
			continue
		}
		for i, a := range p.class.Addrs() {
			for j, b := range p.class.Addrs() {
				if m, n := distinct(p.at[i], q.at[j]); m < 0 && n < 0 {
					sets = append(sets, c.Space.Intersect(c.Space.Sources(single(a)...), c.Space.Destinations(single(b)...)))
				}
			}
		}
	}
	return c.Space.Union(sets...)
}

// distinct returns the first member of each list such that they are different; -1: there are none.
func distinct(a, b []int) (int, int) {
	for _, m := range a[:min(2, len(a))] {
		for _, n := range b[:min(2, len(b))] {
			if m != n {
				return m, n
			}
		}
	}
	return -1, -1
}

// hostsForward reports whether policies of host endpoints apply to packets that nodes forward.
func (c *Cluster) hostsForward() bool {
	for _, q := range c.Full.Policies {
		if q.ApplyOnForward && len(c.Full.Hosts) > 0 {
			return true
		}
	}
	return false
}

// example describes a header between selected members.
func (c *Cluster) example(wrong meeting, from, to *side) *Example {
	h := c.usual(wrong)
	src, srcPod := c.byAddr[h.Src]
	dst, dstPod := c.byAddr[h.Dst]
	var left, right []int
	var sender, receiver *class.Member
	if srcPod {
		left = selected(from.picks, src)
		sender = &src.class.Members[left[0]]
	}
	if dstPod {
		right = selected(to.picks, dst)
		receiver = &dst.class.Members[right[0]]
	}
	if srcPod && dstPod && src.class == dst.class {
		m, n := distinct(left, right)
		sender, receiver = &src.class.Members[m], &dst.class.Members[n]
	}
	return c.Describe(h, sender, receiver)
}

func selected(picks []pick, at place) []int {
	for _, p := range picks {
		if p.class == at.class {
			return p.at[at.index]
		}
	}
	return nil
}
