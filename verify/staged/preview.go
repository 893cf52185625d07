package staged

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// Preview evaluates packets under the policies of one moment. It is not safe for concurrent use.
type Preview struct {
	Policies  []*model.Policy // the staged ones, as Policies returns them
	byTarget  map[model.PolicyID]*model.Policy
	space     *space.Space
	now, then side
}

// side is the cluster with, or without, staged policies enforced.
type side struct {
	*meaning.Cluster
	pods map[model.PodID]*meaning.Pod
}

// Outcome is the two decisions about a header.
type Outcome struct {
	Now, Then meaning.Decision
	// By is the staged policy behind a difference. Of several that cause it together, it is one.
	By *model.Policy
}

// Changes reports whether the verdict, or the rule behind it, would be another one.
func (o *Outcome) Changes() bool {
	return o.Now.Allowed != o.Then.Allowed || o.Now.Rule != o.Then.Rule ||
		!slices.EqualFunc(o.Now.Policies, o.Then.Policies, func(a, b *model.Policy) bool { return a.ID == b.ID })
}

// Read reads objects. It returns nil if no staged policy would change anything.
func Read(objects []model.Object) *Preview {
	list := Policies(objects)
	if len(list) == 0 {
		return nil
	}
	s := space.New()
	p := &Preview{Policies: list, space: s, byTarget: map[model.PolicyID]*model.Policy{}, now: readSide(s, objects), then: readSide(s, Enforce(objects))}
	for _, q := range list {
		p.byTarget[q.Target()] = q
	}
	return p
}

func readSide(s *space.Space, objects []model.Object) side {
	d := side{meaning.Read(s, objects), map[model.PodID]*meaning.Pod{}}
	for _, p := range d.Pods {
		d.pods[p.ID] = p
	}
	return d
}

// Size is the number of edges of the sets that evaluations have needed so far: the memory of a Preview.
func (p *Preview) Size() int {
	_, edges := p.space.Size()
	return edges
}

// Decide evaluates a header in one direction of a pod. False: policies do not apply to the pod, as it is not known, finished or on the network of
// its node.
func (p *Preview) Decide(pod model.PodID, egress bool, h space.Header) (o Outcome, known bool) {
	now, then := p.now.pods[pod], p.then.pods[pod]
	if now == nil || then == nil {
		return o, false
	}
	o = Outcome{Now: p.now.Decide(now, egress, h), Then: p.then.Decide(then, egress, h)}
	if o.Changes() {
		o.By = p.responsible(&o, then, egress)
	}
	return o, true
}

// responsible returns a staged policy behind a difference: that of the rule which would decide, or else that which removes or replaces the policy
// which decides now, or else the first one that would apply to the pod.
func (p *Preview) responsible(o *Outcome, pod *meaning.Pod, egress bool) *model.Policy {
	for _, list := range [][]*model.Policy{o.Then.Policies, o.Now.Policies, p.then.Governing(pod, egress)} {
		for _, q := range list {
			if by := p.byTarget[q.ID]; by != nil {
				return by
			}
		}
	}
	return p.Policies[0] // by another order of the policies of a tier: their names count
}
