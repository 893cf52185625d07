package service

import (
	"cmp"
	"errors"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// Status is the state of one Service.
type Status struct {
	ID       model.ServiceID
	Rendered *renderer.ContivService // nil: not rendered
	Skipped  string                  // why it is not rendered; "" if it is
	Notes    []model.Note
	Err      error // errors of the renderers' last calls; nil: none
}

// Services lists every Service, sorted by namespace and name. The caller owns the result; the values it points to never change.
func (p *Processor) Services() []Status {
	out := p.Unsorted()
	SortStatuses(out)
	return out
}

// SortStatuses sorts by namespace and name.
func SortStatuses(list []Status) {
	slices.SortFunc(list, func(a, b Status) int { return a.ID.Compare(b.ID) })
}

// Unsorted is Services without an order: a caller may sort thousands in another goroutine.
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

// Notes returns all notes about Services, local Pods and this Node, sorted by object. Renderers send their notes to their sink.
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

// Target is the state of one renderer, apart from single services.
type Target struct {
	Synced bool // it has accepted a full state once
	Failed int  // number of services it did not accept
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
