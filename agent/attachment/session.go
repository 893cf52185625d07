// Package attachment connects an agent to a Felix above it, whose dataplane driver it is, or to an external driver below it.
//
// Invariant: a Felix gets the state of an endpoint only when VPP has answered all requests for it; until then the last report holds.
package attachment

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	ligatoacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
)

// An agent under Felix has no calculation graph: policies and endpoints arrive as messages, and the agent reports VPP's
// state of endpoints.
//
//	Felix ─▶ felix.Driver ─ event.Dataplane ─▶ plugins/policy (stream) ─▶ renderer/acl ─▶ …
//	      ◀─              ◀─ felix.Report ──── session ◀─ what VPP has acknowledged

// Felix is an agent's session with the Felix whose dataplane driver it is.
type Felix struct {
	// Driver is the session. It is a source, and need not be in Config.Sources. Nil: the caller feeds messages.
	Driver *felix.Driver
	// Before is called with the session's events before the agent gets them; nil: not called.
	Before func(event.Event)
	// OnReport is called with each report to Felix; nil: not called.
	OnReport func(felix.Report)
}

// Source returns the session as a source.
func (f *Felix) Source() Source {
	if f.Before == nil {
		return f.Driver
	}
	return seen{f.Driver, f.Before}
}

// Source delivers Felix's messages as events.
type Source interface {
	// Run emits events until ctx ends.
	Run(ctx context.Context, emit func(event.Event)) error
}

// seen is a source with a function that gets its events first.
type seen struct {
	Source
	before func(event.Event)
}

// Run implements Source.
func (s seen) Run(ctx context.Context, emit func(event.Event)) error {
	return s.Source.Run(ctx, func(ev event.Event) { s.before(ev); emit(ev) })
}

// Session reports VPP's state of Felix's endpoints. It belongs to the loop. A nil Session does nothing.
type Session struct {
	cfg   *Felix
	loop  Loop
	fresh bool // VPP has been compared with the desired state since its connect
	away  bool // the last attempt to reach VPP failed
	count *felixMetrics
	last  felix.Report
	seen  uint64 // version of the endpoints at the last report
}

// Loop is what a Session reads in the loop: endpoints, the desired values, and VPP's answers.
type Loop struct {
	Policies   *policy.Processor
	Values     *controller.Values
	Controller *controller.Controller
}

// NewSession returns a session that has reported nothing.
func NewSession(cfg *Felix, loop Loop) *Session {
	return &Session{cfg: cfg, loop: loop, count: newFelixMetrics(cfg.Driver)}
}

// Metrics returns the metrics of the session.
func (s *Session) Metrics() prometheus.Collector { return s.count }

// Idle reports when no work is left, if endpoints may have changed since the last report without a transaction. Before VPP
// has been compared with the desired state it reports only that VPP is away.
func (s *Session) Idle() {
	if s != nil && (s.fresh || s.away) && s.seen != s.loop.Policies.EndpointsVersion() {
		s.reportEndpoints()
	}
}

// Committed reports after a transaction: VPP has answered all requests, unless it was an interim state.
func (s *Session) Committed(ev *event.Committed) {
	if s == nil {
		return
	}
	if ev.Err == nil && ev.Resync != event.NoResync && s.loop.Controller.Status().Started {
		s.fresh = true
	}
	if !s.fresh && ev.Err == nil {
		return // the comparison with VPP is running; an endpoint that was up must not be down meanwhile
	}
	if !s.loop.Policies.Again() {
		s.reportEndpoints()
	}
}

// VPP reports that VPP is away.
func (s *Session) VPP(ev *event.VPPStatus) {
	if s == nil {
		return
	}
	if s.away = !ev.Connected; s.away {
		s.fresh = false
		s.reportEndpoints()
	}
}

// reportEndpoints sends Felix the state of all endpoints, if it differs from the last report.
func (s *Session) reportEndpoints() {
	s.seen = s.loop.Policies.EndpointsVersion()
	now, same := felix.Report{}, true
	for _, e := range s.loop.Policies.Endpoints() {
		id := felix.EndpointID{Endpoint: e.Host}
		if e.Workload != nil {
			id = felix.EndpointID{Orchestrator: e.Workload.OrchestratorId, Workload: e.Workload.WorkloadId, Endpoint: e.Workload.EndpointId}
		}
		old, had := s.last[id]
		at := felix.EndpointState{Sent: e.Message}
		switch at.Health, at.Reason = s.health(&e); {
		case at.Health != "":
		case had: // unknown yet: the last report holds
			at.Health, at.Reason = old.Health, old.Reason
		default:
			continue
		}
		same = same && had && old == at
		now[id] = at
	}
	if same && len(now) == len(s.last) {
		return
	}
	s.last = now
	s.count.reported(now)
	if s.cfg.Driver != nil {
		s.cfg.Driver.Report(now)
	}
	if s.cfg.OnReport != nil {
		s.cfg.OnReport(now)
	}
}

// health returns the state of an endpoint, and the reason if it is not up; "" if VPP has not answered yet.
func (s *Session) health(e *policy.Endpoint) (felix.Health, string) {
	switch {
	case !s.fresh:
		return felix.Down, "VPP is away, or was not compared with what is wanted yet"
	case !e.Active:
		return felix.Down, "administratively down"
	case len(e.Interfaces) == 0 && e.Asked:
		return "", ""
	case len(e.Interfaces) == 0:
		return felix.Down, "no interface of VPP leads to it"
	case e.Host != "":
		if why := s.unenforced(e.Host); why != "" {
			return felix.Down, why
		}
	}
	for _, name := range e.Interfaces {
		if health, why := s.listHealth(name); health != felix.Up {
			return health, why
		}
	}
	return felix.Up, ""
}

// unenforced returns why a host endpoint has no interface; "" if it has one.
func (s *Session) unenforced(name string) string {
	for _, o := range s.loop.Controller.Owners(acl.Owner + "note/host") {
		for _, n := range o.Notes {
			if n.Ref.Kind == model.KindHostEndpoint && n.Ref.Name == name && n.Reason == acl.HostNotEnforced {
				return n.Reason
			}
		}
	}
	return ""
}

// listHealth returns VPP's access lists of an interface.
func (s *Session) listHealth(name string) (felix.Health, string) {
	key := kv.Key(&contivacl.InterfaceACLs{Interface: name})
	keys := []string{key}
	if lists, ok := s.loop.Values.Sent(key).(*contivacl.InterfaceACLs); ok {
		for _, list := range slices.Concat(lists.Input, lists.Output) {
			keys = append(keys, kv.Key(&ligatoacl.ACL{Name: list}))
		}
	}
	for _, key := range keys {
		st, bad := s.loop.Controller.Unwell(key)
		switch {
		case !bad:
		case st.State == event.Pending:
			return felix.Down, st.Line()
		default:
			return felix.Error, st.Line()
		}
	}
	return felix.Up, ""
}

// Version increases with each change of what Felix has sent; 0 without a Felix. It is safe for concurrent use.
func (s *Session) Version() uint64 {
	if s == nil || s.cfg.Driver == nil {
		return 0
	}
	return s.cfg.Driver.State().Version
}

// Status returns the session for the status command; nil without a session.
func (s *Session) Status() *FelixStatus {
	if s == nil {
		return nil
	}
	out := &FelixStatus{State: "messages are fed by hand"}
	if s.cfg.Driver != nil {
		st := s.cfg.Driver.State()
		out.State = felixWaits + "config_update and in_sync"
		switch {
		case st.InSync:
			out.State = event.InSync.String()
		case st.Config:
			out.State = felixWaits + "in_sync"
		}
		out.Dialect, out.Sequence, out.Messages = st.Dialect.String(), st.Sequence, st.Messages
	}
	for id, at := range s.last {
		out.Endpoints = append(out.Endpoints, Endpoint{id.String(), string(at.Health), at.Reason})
	}
	slices.SortFunc(out.Endpoints, func(a, b Endpoint) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}
