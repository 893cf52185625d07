package status

import (
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// problems returns the problems of Services and policies, and of the objects that policies use, with the texts of status. It
// omits remarks that no object asked for, and Services without endpoints.
func (p *Picture) problems() (out []event.Problem) {
	st := &p.loop.Status
	add := func(ref model.Ref, reason event.Reason, texts ...string) {
		for _, text := range texts {
			out = append(out, event.Problem{Ref: ref, Reason: reason, Text: text})
		}
	}
	owned, notes := map[model.Ref][]controller.OwnerStatus{}, map[model.Ref][]model.Note{}
	for _, o := range p.owners() {
		if ref := ownerRef(o.Owner); ref != (model.Ref{}) && (len(o.Unwell) > 0 || slices.ContainsFunc(o.Notes, isRefusal)) {
			owned[ref] = append(owned[ref], o)
		}
		for _, n := range o.Notes {
			if n.Ref.Kind != model.KindService && n.Refused {
				notes[n.Ref] = append(notes[n.Ref], n)
			}
		}
	}
	for _, ch := range st.Refused {
		switch {
		case p.Policies != nil && policy.IsPolicy(ch.Ref.Kind) && ch.Object != nil:
			add(ch.Ref, event.NotUnderstood, failsClosed+ch.Err.Error())
		case p.reported(ch.Ref.Kind):
			add(ch.Ref, event.NotUnderstood, ch.Err.Error())
		}
	}
	if p.Services {
		p.serviceProblems(owned, add)
	}
	p.policyProblems(st, notes, add)
	out = append(out, p.driftProblems()...)
	if !p.Conn.State().Silent.Since.IsZero() { // a constant text: each change would make another Event
		add(model.Ref{Kind: model.KindNode, Name: p.Node}, event.VPPSilent, "VPP does not answer: it works on a large change, hangs, or is stopped")
	}
	if why := p.Rival(); why != "" {
		add(model.Ref{Kind: model.KindNode, Name: p.Node}, event.VPPShared, why)
	}
	out = append(out, p.differences(p.Proof.Last())...)
	for _, h := range p.Held() { // without numbers, which change
		add(model.Ref{Kind: model.KindNode, Name: p.Node}, event.RemovalsHeld, "source "+h.Source+" would remove many objects at once, which the agent holds: contiv-agent status shows what, and contiv-agent release carries it out")
	}
	slices.SortStableFunc(out, func(a, b event.Problem) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	return slices.CompactFunc(out, func(a, b event.Problem) bool { return a == b })
}

func isRefusal(n model.Note) bool { return n.Refused }

// reported reports whether the agent reports on objects of a kind.
func (r *Reader) reported(kind model.Kind) bool {
	switch kind {
	case model.KindService:
		return r.Services
	case model.KindTier, model.KindNetworkSet, model.KindGlobalNetworkSet, model.KindHostEndpoint:
		return r.Policies != nil
	}
	return r.Policies != nil && policy.IsPolicy(kind)
}

func (p *Picture) serviceProblems(owned map[model.Ref][]controller.OwnerStatus, add func(model.Ref, event.Reason, ...string)) {
	unanswered := p.Unserved()
	for _, svc := range p.services() {
		ref := model.Ref{Kind: model.KindService, Namespace: svc.ID.Namespace, Name: svc.ID.Name}
		if svc.Skipped != "" {
			continue
		}
		for _, n := range svc.Notes {
			if n.Refused {
				add(ref, event.NotSupported, n.Reason)
			}
		}
		for _, o := range owned[ref] {
			for _, n := range o.Notes {
				if n.Refused && n.Ref.Kind == model.KindService {
					add(ref, event.NotSupported, n.Reason)
				}
			}
		}
		for _, o := range owned[ref] {
			for _, v := range o.Unwell {
				add(ref, event.NotProgrammed, v.Line())
			}
		}
		if svc.Err != nil {
			add(ref, event.NotProgrammed, svc.Err.Error())
		}
		add(ref, event.NotAnswered, unanswered[svc.ID]...)
	}
}

// policyProblems adds the problems of policies that apply to an endpoint here; unknown parts of policies are already
// reported.
func (p *Picture) policyProblems(st *controller.Status, notes map[model.Ref][]model.Note, add func(model.Ref, event.Reason, ...string)) {
	if p.Policies == nil {
		return
	}
	unwellKeys := map[string]event.ValueStatus{}
	for _, v := range st.Unwell {
		unwellKeys[v.Key] = v
	}
	driven := &Status{}
	p.driverStatus(driven)
	for _, s := range p.policyList {
		ref := s.Policy.Ref()
		for _, n := range slices.Concat(s.Notes, notes[ref]) {
			if n.Refused {
				add(ref, event.NotEnforced, n.Reason)
			}
		}
		if s.Refused != "" {
			add(ref, event.NotEnforced, s.Refused)
		}
		status := policyStatus(s, unwellKeys, notes)
		if driven.driver != nil {
			status = drivenStatus(s, driven.driver)
		}
		if status.State != event.Configured.String() && status.State != Idle {
			add(ref, event.NotProgrammed, status.Reasons...)
		}
	}
}
