package service

import (
	"cmp"
	"errors"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Status is what became of one Service.
type Status struct {
	ID       model.ServiceID
	Rendered *renderer.ContivService // nil: not at all
	Skipped  string                  // why not; "" if it is rendered
	Notes    []model.Note
	Err      error // what renderers answered to the last calls; nil: all is well
}

// Services lists every Service there is, sorted by namespace and name. The result is the caller's; what it points to
// never changes.
func (p *Processor) Services() []Status {
	out := p.Unsorted()
	SortStatuses(out)
	return out
}

// SortStatuses sorts by namespace and name.
func SortStatuses(list []Status) {
	slices.SortFunc(list, func(a, b Status) int { return a.ID.Compare(b.ID) })
}

// Unsorted is Services in no order: sorting thousands may be done elsewhere.
func (p *Processor) Unsorted() []Status {
	out := make([]Status, 0, len(p.services))
	for _, s := range p.services {
		if s.spec != nil {
			out = append(out, Status{
				ID: s.id, Rendered: s.built, Skipped: skipReason(s.spec, p.cfg.ProxyName), Notes: s.notes, Err: errors.Join(s.errs...),
			})
		}
	}
	return out
}

// Notes is all there is to say about Services, local Pods and this Node, sorted by object. What renderers have to say
// they tell their sink.
func (p *Processor) Notes() []model.Note {
	out := slices.Clone(p.nodeNotes)
	for _, s := range p.services {
		out = append(out, s.notes...)
	}
	if p.located != nil {
		for id := range p.pods.local {
			if p.interfaceOf(id) == "" {
				out = append(out, model.Note{
					Ref:    model.Ref{Kind: model.KindPod, Namespace: id.Namespace, Name: id.Name},
					Reason: "no interface of VPP leads to " + p.pods.ips[id][0].String() + ": it is not a client of services", Refused: true,
				})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b model.Note) int {
		return cmp.Or(cmp.Compare(a.Ref.String(), b.Ref.String()), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// Target is what became of one renderer, apart from single services.
type Target struct {
	Synced bool // it has accepted everything once
	Failed int  // services it did not accept
	Err    error
}

// Targets lists the renderers in the order New was given them.
func (p *Processor) Targets() []Target {
	out := make([]Target, len(p.targets))
	for i, t := range p.targets {
		out[i] = Target{Synced: t.synced, Failed: len(t.failed), Err: t.err}
	}
	return out
}
