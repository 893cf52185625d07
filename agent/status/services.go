package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// objects joins the reports of the processors, the renderers and VPP about each Service and each policy, and collects other
// remarks.
func (p *Picture) objects(out *Status, st *controller.Status, texts bool) {
	owned := map[model.Ref][]controller.OwnerStatus{}
	notes := map[model.Ref][]model.Note{}
	var others []model.Note
	remark := func(list []model.Note) {
		for _, n := range list {
			if n.Ref.Kind != model.KindService {
				notes[n.Ref] = append(notes[n.Ref], n)
				others = append(others, n)
			}
		}
	}
	for _, o := range p.owners() {
		ref := ownerRef(o.Owner)
		owned[ref] = append(owned[ref], o)
		remark(o.Notes)
	}
	unanswered := p.Unserved()
	for _, svc := range p.services() {
		ref := model.Ref{Kind: model.KindService, Namespace: svc.ID.Namespace, Name: svc.ID.Name}
		out.Services = append(out.Services, serviceStatus(svc, owned[ref], unanswered[svc.ID], texts))
	}
	out.Services = append(out.Services, refusedServices(st, out.Services)...)
	known := p.policyStatuses(out, st, notes)
	remark(p.notes)
	for _, n := range others {
		if !known[n.Ref] {
			note := Note{Object: n.Ref.String(), Reason: n.Reason}
			if n.Refused {
				note.State = Partial
			}
			out.Notes = append(out.Notes, note)
		}
	}
}

// serviceStatus joins the reports about a Service; unanswered is why its health checks are not served.
func serviceStatus(svc service.Status, owners []controller.OwnerStatus, unanswered []string, text bool) Service {
	s := Service{Name: svc.ID.String(), State: event.Configured.String()}
	if svc.Skipped != "" {
		s.State = Skipped
		s.because(svc.Skipped, Cause{Of: ofSkipped})
	}
	for _, n := range remarks(svc, owners) {
		s.because(n.Reason, remarkOf(n))
	}
	if svc.Skipped != "" {
		return s
	}
	worst := event.Configured
	for _, o := range owners {
		worst = max(worst, o.State())
		for _, v := range o.Unwell {
			s.because(v.Line(), causeOf(v))
		}
	}
	s.State = worse(worst.String(), refusal(svc, owners))
	for _, why := range unanswered {
		s.State = worse(s.State, event.Retrying.String())
		s.because(why, Cause{Of: ofHealth})
	}
	if svc.Err != nil {
		s.State = worse(s.State, event.Retrying.String())
		s.because(svc.Err.Error(), Cause{Of: ofRenderer})
	}
	if svc.Rendered != nil {
		if text {
			s.Text, s.Serves = svc.Rendered.String(), served(svc.Rendered)
		}
		for _, port := range endpointless(svc.Rendered) {
			s.because(fmt.Sprintf("port %d/%s has no endpoint: clients are rejected", port.Port, port.Protocol), Cause{Of: ofNoEndpoints, Port: port.Port, Protocol: port.Protocol.String()})
		}
	}
	return s
}

// refusal returns PARTIAL if a part of a Service is not served because of the Service's own fields, REFUSED if no part is
// served, and CONFIGURED if all is. Ports without an endpoint translate nothing: they count as served if there are more of
// them than refusals.
func refusal(svc service.Status, owners []controller.OwnerStatus) string {
	refused, served := 0, false
	for _, n := range svc.Notes {
		if n.Refused {
			refused++
		}
	}
	for _, o := range owners {
		for _, n := range o.Notes {
			if n.Refused && n.Ref.Kind == model.KindService {
				refused++
			}
		}
		served = served || slices.ContainsFunc(o.Keys, translates)
	}
	switch {
	case refused == 0:
		return event.Configured.String()
	case served || svc.Rendered != nil && len(endpointless(svc.Rendered)) > refused:
		return Partial
	}
	return Refused
}

// translates separates the keys that translate an address and port of a Service from those that reject it.
func translates(key string) bool {
	return kv.Translates(key)
}

// refusedServices returns the refused Services, which renderers do not get.
func refusedServices(st *controller.Status, known []Service) (out []Service) {
	for _, ch := range st.Refused {
		name := model.ServiceID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}.String()
		if ch.Ref.Kind != model.KindService || slices.ContainsFunc(known, func(s Service) bool { return s.Name == name }) {
			continue
		}
		s := Service{Name: name, State: Refused}
		s.because(ch.Err.Error(), Cause{Of: ofRefusal})
		out = append(out, s)
	}
	return out
}

// endpointless returns the ports without any endpoint: not an error, but a frequent question.
func endpointless(svc *renderer.ContivService) (out []*renderer.ServicePort) {
	for _, name := range svc.PortNames() {
		if len(svc.Backends[name]) == 0 && len(svc.Local(name)) == 0 {
			out = append(out, svc.Ports[name])
		}
	}
	return out
}

// remarks returns the remarks of the processor and the renderers on a Service.
func remarks(svc service.Status, owners []controller.OwnerStatus) []model.Note {
	out := slices.Clone(svc.Notes)
	for _, o := range owners {
		for _, n := range o.Notes {
			if n.Ref.Kind == model.KindService {
				out = append(out, n)
			}
		}
	}
	return out
}

// ownerRef returns the object of an owner "<renderer>/service/<ns>/<name>"; zero for other owners.
func ownerRef(owner string) model.Ref {
	_, rest, _ := strings.Cut(owner, "/")
	kind, id, _ := strings.Cut(rest, "/")
	ns, name, ok := strings.Cut(id, "/")
	if kind != "service" || !ok {
		return model.Ref{}
	}
	return model.Ref{Kind: model.KindService, Namespace: ns, Name: name}
}
