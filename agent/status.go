package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// Status is the state of an agent, of every Service and of every policy; the status command shows it.
type Status struct {
	Node     string                   `json:"node"`
	InSync   bool                     `json:"inSync"`
	Waiting  string                   `json:"waiting,omitempty"`  // what is missing; "" when in sync
	Ready    bool                     `json:"ready"`              // as InSync, but a transaction may be running: the node can serve
	Healthy  bool                     `json:"healthy"`            // Ready, without Problems
	Summary  string                   `json:"summary,omitempty"`  // Problems counted by state: "2 FAILED, 16 REFUSED"; "": none
	Problems []Problem                `json:"problems,omitempty"` // all problems, most severe first
	VPP      VPPStatus                `json:"vpp"`
	Sources  []SourceStatus           `json:"sources"`
	Settings map[string]string        `json:"settings,omitempty"` // flags that differ from their defaults
	Felix    *attachment.FelixStatus  `json:"felix,omitempty"`    // of an agent under Felix
	Driver   *attachment.DriverStatus `json:"driver,omitempty"`   // the external driver that enforces policies
	Ifs      *Interfaces              `json:"interfaces,omitempty"`
	NAT      *nattable.Status         `json:"natTable,omitempty"` // nil: not counted
	Services []ServiceStatus          `json:"services"`
	Policies []PolicyStatus           `json:"policies,omitempty"`
	Refused  []Refusal                `json:"refused,omitempty"` // refused objects
	Notes    []Note                   `json:"notes,omitempty"`   // remarks on other objects
	Values   int                      `json:"values"`            // desired values
	Mappings int                      `json:"mappings"`          // frontends among the values: NAT44 mappings of an address and port
	Unwell   []ValueStatus            `json:"unwell,omitempty"`  // values that are not configured
	Foreign  []string                 `json:"foreign,omitempty"` // foreign objects in VPP; the agent does not change them
	Drift    []DriftStatus            `json:"drift,omitempty"`   // recent changes of other programs to the agent's values
	Spoofed  []counters.SourceDrops   `json:"spoofed,omitempty"` // packets that source checks dropped, by pod, most first
	History  []Transaction            `json:"history,omitempty"` // past transactions, oldest first; only on request
	Last     *Transaction             `json:"lastTransaction,omitempty"`
	// Busy is why this is an earlier state, not the present one; "": the present state.
	Busy string `json:"busy,omitempty"`

	driver *felix.SupervisorStatus // the source of Driver and of the states of policies; nil: no driver
}

// VPPStatus is the state of the connection to VPP.
type VPPStatus struct {
	Connected   bool   `json:"connected"`
	Version     string `json:"version,omitempty"`
	Connections uint64 `json:"connections"` // number of connections so far
	// Reclassify is whether VPP evaluates established flows again when policies change: "on", "off" or "unknown".
	Reclassify string `json:"reclassify"`
	Error      string `json:"error,omitempty"`
	Rival      string `json:"rival,omitempty"`  // another agent that does not see this agent's lock; "": none found
	Silent     string `json:"silent,omitempty"` // the time since VPP's last answer, and the unanswered request; "": it answers
}

// SourceStatus is the state of a source.
type SourceStatus struct {
	Name   string `json:"name"`
	Status string `json:"status"` // wait-for-ready, resync, in-sync
	Error  string `json:"error,omitempty"`
	Note   string `json:"note,omitempty"` // what it ignores by configuration
}

// Interfaces are the interfaces that the agent found in VPP.
type Interfaces struct {
	Uplink  string            `json:"uplink,omitempty"`
	Overlay string            `json:"overlay,omitempty"`
	Host    string            `json:"host,omitempty"`
	Pods    map[string]string `json:"pods,omitempty"` // address → interface
}

// ServiceStatus is the state of one Service.
type ServiceStatus struct {
	Name    string   `json:"name"`  // namespace/name
	State   string   `json:"state"` // CONFIGURED, PENDING, …; SKIPPED: another proxy serves it; PARTIAL, REFUSED: see Reasons
	Reasons []string `json:"reasons,omitempty"`
	Text    string   `json:"text,omitempty"` // addresses, ports and endpoints in one line
}

// Refusal is a refused object.
type Refusal struct {
	Object string `json:"object"`
	Origin string `json:"origin,omitempty"`
	Error  string `json:"error"`
}

// Note is a remark on an object.
type Note struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
	// State is PARTIAL, REFUSED, PENDING, … if Reason keeps a part from being served or enforced; "": only a remark.
	State string `json:"state,omitempty"`
}

// DriftStatus is a key whose value in VPP recently differed from what the agent had made.
type DriftStatus struct {
	Key      string    `json:"key"`
	What     string    `json:"what"`  // missing, changed, extra
	Times    int       `json:"times"` // since the agent started
	Last     time.Time `json:"last"`
	Repaired bool      `json:"repaired"`
	Contest  string    `json:"contest,omitempty"` // the known reason why another program changes it again and again
	Error    string    `json:"error,omitempty"`   // why it is not repaired, from the last two rounds
}

// ValueStatus is a value that is not configured.
type ValueStatus struct {
	Key     string   `json:"key"`
	State   string   `json:"state"`
	Error   string   `json:"error,omitempty"`
	Waiting []string `json:"waitingFor,omitempty"`
}

// Transaction is a transaction that ended.
type Transaction struct {
	At     time.Time     `json:"at,omitzero"`
	Seq    uint64        `json:"seq"` // 0: a retry or repair by the agent
	Cause  string        `json:"cause"`
	Kind   string        `json:"kind"`
	Add    int           `json:"add"`
	Mod    int           `json:"mod"`
	Del    int           `json:"del"`
	Writes int           `json:"writes"`
	Took   time.Duration `json:"tookNanoseconds"`
	Error  string        `json:"error,omitempty"`
	Ops    []string      `json:"operations,omitempty"` // only in the history: "create <key>", in order of execution
}

// history returns the past transactions that the VPP agent still has. It is safe for concurrent use.
func (p *parts) history() []Transaction {
	var out []Transaction
	for _, r := range p.vppagent.Snapshot().History {
		t := Transaction{
			At: r.At, Seq: r.Seq, Cause: r.Cause, Kind: r.Resync.String(), Add: r.Add, Mod: r.Mod, Del: r.Del, Writes: r.Writes, Took: r.Took, Error: r.Err,
		}
		for _, op := range r.Ops {
			t.Ops = append(t.Ops, op.String())
		}
		if r.Dropped > 0 {
			t.Ops = append(t.Ops, fmt.Sprintf("… and %d more", r.Dropped))
		}
		out = append(out, t)
	}
	return out
}

// build makes a status from the picture and from state that other goroutines publish; without texts, Services have none.
func (p *picture) build(texts bool) *Status {
	st, vpp := &p.loop.Status, p.vppagent.Snapshot()
	out := &Status{
		Node: p.cfg.NodeName, InSync: st.Synced(), Ready: st.Healthy(), Values: st.Values,
		VPP: VPPStatus{
			Connected: st.VPP.Connected, Version: st.VPP.Version, Connections: st.VPP.Generation, Error: text(st.VPP.Err),
			Reclassify: vpp.Reclassify.String(),
		},
		Sources:  []SourceStatus{},
		Settings: p.cfg.Settings,
		Services: []ServiceStatus{},
		Ifs:      interfaces(st.Located),
		Last:     transaction(st.Last),
		Foreign:  vpp.Foreign,
		Drift:    p.drift(vpp.Drift),
	}
	if why := vpp.Reclassify.Consequence(); why != "" && p.policies != nil {
		out.Notes = append(out.Notes, Note{model.Ref{Kind: model.KindNode, Name: p.cfg.NodeName}.String(), why, statePartial})
	}
	for _, src := range st.Sources {
		out.Sources = append(out.Sources, SourceStatus{Name: src.Source, Status: src.Status.String(), Error: text(src.Err), Note: src.Note})
	}
	for _, ch := range st.Refused {
		out.Refused = append(out.Refused, Refusal{Object: ch.Ref.String(), Origin: ch.Origin, Error: ch.Err.Error()})
	}
	for _, v := range st.Unwell {
		out.Unwell = append(out.Unwell, ValueStatus{Key: v.Key, State: v.State.String(), Error: v.Err, Waiting: v.Details})
	}
	out.Waiting, out.Spoofed, out.Mappings = waiting(st), p.counters.Drops(p.pods), p.mappings
	p.others(out)
	out.Felix = p.felix
	p.objects(out, st, texts)
	if why := p.proxy.Problem(); why != "" {
		out.Notes = append(out.Notes, Note{model.Ref{Kind: model.KindNode, Name: p.cfg.NodeName}.String(), "healthz is not served yet: " + why, event.Pending.String()})
	}
	out.summarize()
	return out
}

// waiting returns what is missing for being in sync.
func waiting(st *controller.Status) string {
	if st.Synced() {
		return ""
	}
	var what []string
	for _, src := range st.Sources {
		if src.Status != event.InSync {
			text := "source " + src.Source + " is " + src.Status.String()
			if src.Err != nil { // e.g. a missing right: the administrator looks here first
				text += ": " + src.Err.Error()
			}
			what = append(what, text)
		}
	}
	switch {
	case errors.Is(st.VPP.Err, vpp.ErrOwned):
		what = append(what, st.VPP.Err.Error())
	case !st.VPP.Connected:
		what = append(what, "VPP is not connected")
	case !st.Started:
		what = append(what, "the first sync has not begun")
	case st.InFlight != 0:
		what = append(what, fmt.Sprintf("transaction %d is running", st.InFlight))
	case st.Left > 0:
		what = append(what, fmt.Sprintf("%d values wait for pauses between requests", st.Left))
	case st.Last != nil && st.Last.Err != nil:
		what = append(what, "the last transaction failed: "+st.Last.Err.Error())
	}
	return strings.Join(what, "; ")
}

// objects joins the reports of the processors, the renderers and VPP about each Service and each policy, and collects other
// remarks.
func (p *picture) objects(out *Status, st *controller.Status, texts bool) {
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
	unanswered := p.healthProblems()
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
				note.State = statePartial
			}
			out.Notes = append(out.Notes, note)
		}
	}
}

// serviceStatus joins the reports about a Service; unanswered is why its health checks are not served.
func serviceStatus(svc service.Status, owners []controller.OwnerStatus, unanswered []string, text bool) ServiceStatus {
	s := ServiceStatus{Name: svc.ID.String(), State: event.Configured.String(), Reasons: reasons(svc, owners)}
	if svc.Skipped != "" {
		s.State, s.Reasons = stateSkipped, append([]string{svc.Skipped}, s.Reasons...)
		return s
	}
	worst := event.Configured
	for _, o := range owners {
		worst = max(worst, o.State())
		for _, v := range o.Unwell {
			s.Reasons = append(s.Reasons, v.Line())
		}
	}
	s.State = worse(worst.String(), refusal(svc, owners))
	if len(unanswered) > 0 {
		s.State, s.Reasons = worse(s.State, event.Retrying.String()), append(s.Reasons, unanswered...)
	}
	if svc.Err != nil {
		s.State, s.Reasons = worse(s.State, event.Retrying.String()), append(s.Reasons, svc.Err.Error())
	}
	if svc.Rendered != nil {
		if text {
			s.Text = svc.Rendered.String()
		}
		s.Reasons = append(s.Reasons, endpointless(svc.Rendered)...)
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
		return statePartial
	}
	return stateRefused
}

// translates separates the keys that translate an address and port of a Service from those that reject it.
func translates(key string) bool {
	return kv.Translates(key)
}

// refusedServices returns the refused Services, which renderers do not get.
func refusedServices(st *controller.Status, known []ServiceStatus) (out []ServiceStatus) {
	for _, ch := range st.Refused {
		name := model.ServiceID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}.String()
		if ch.Ref.Kind != model.KindService || slices.ContainsFunc(known, func(s ServiceStatus) bool { return s.Name == name }) {
			continue
		}
		out = append(out, ServiceStatus{Name: name, State: stateRefused, Reasons: []string{ch.Err.Error()}})
	}
	return out
}

// endpointless returns the ports without any endpoint: not an error, but a frequent question.
func endpointless(svc *renderer.ContivService) []string {
	var out []string
	for _, name := range svc.PortNames() {
		if len(svc.Backends[name]) == 0 && len(svc.Local(name)) == 0 {
			out = append(out, fmt.Sprintf("port %d/%s has no endpoint: clients are rejected", svc.Ports[name].Port, svc.Ports[name].Protocol))
		}
	}
	return out
}

// reasons returns the remarks of the processor and the renderers on a Service.
func reasons(svc service.Status, owners []controller.OwnerStatus) []string {
	var out []string
	for _, n := range svc.Notes {
		out = append(out, n.Reason)
	}
	for _, o := range owners {
		for _, n := range o.Notes {
			if n.Ref.Kind == model.KindService {
				out = append(out, n.Reason)
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

func interfaces(l *event.Located) *Interfaces {
	if l == nil {
		return nil
	}
	out := &Interfaces{Uplink: l.Uplink, Overlay: l.Overlay, Host: l.Host, Pods: map[string]string{}}
	for addr, name := range l.Pods {
		out.Pods[addr.String()] = name
	}
	return out
}

func transaction(c *event.Committed) *Transaction {
	if c == nil {
		return nil
	}
	return &Transaction{
		Seq: c.Seq, Cause: c.Cause, Kind: c.Resync.String(), Add: c.Add, Mod: c.Mod, Del: c.Del, Writes: c.Writes, Took: c.Took, Error: text(c.Err),
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
