package agent

import (
	"context"
	"sync/atomic"

	"github.com/contiv-agent/contiv-agent/agent/capture"
	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/event"
)

// changes counts changes of an agent's state.
type changes struct{ n atomic.Uint64 }

func (c *changes) happened() { c.n.Add(1) }

// watched emits to the loop, and counts.
func (c *changes) watched(emit func(event.Event)) func(event.Event) {
	return func(ev event.Event) { emit(ev); c.happened() }
}

// release carries out held removals and lets values in quarantine in again. It returns what was held, and what was in quarantine.
func (a *Agent) release() []string {
	return append(a.cfg.Process.Removals.ReleaseAll(), a.cfg.VPPAgent.Quarantine.ReleaseAll()...)
}

// control returns the server of the unix socket, whose captures end when ctx ends.
func (a *Agent) control(ctx context.Context) *control.Server {
	return &control.Server{
		Status: a.Status, History: a.reader.History, Policy: a.Policy, Plan: a.vppagent.Drift, Verify: a.reader.Proof.Report, LogLevel: a.cfg.Process.LogLevel, Logger: a.log, Registry: a.registry,
		Release: a.release, Journal: a.cfg.Process.Recorder.Archive(), Flows: a.cfg.Process.Flows.Ask, AllFlows: a.cfg.Process.Flows.All, Objects: (&control.Holder{Node: a.cfg.NodeName, Controller: a.controller, Have: a.reader.Proof.Objects}).Read, Capture: (&capture.Pods{Node: a.cfg.NodeName, Do: a.conn.Do, InLoop: a.inLoop, Objects: a.reader.Proof.Objects, Interface: a.cfg.Process.Capture}).Until(ctx),
		Trace: live.New(a.cfg.NodeName, a.conn.Do, a.inLoop, a.controller, live.Loop{Objects: a.reader.Proof.Objects, Policies: a.policies, Sent: a.values.Sent, Namespace: a.cfg.Pods.Namespace}).Until(ctx),
	}
}
