package simulate

import (
	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// The kinds of faults of a fan-out server, which all nodes share.
const (
	CutFanout  = servers.CutFanout
	HangFanout = servers.HangFanout
	SlowFanout = servers.SlowFanout
	KillFanout = servers.KillFanout
	DeadFanout = servers.DeadFanout
)

// fanoutFaults are drawn beside faults, as apiFaults are.
var fanoutFaults = []Kind{CutFanout, HangFanout, SlowFanout, KillFanout}

// laterFanoutFaults are drawn beside fanoutFaults, for the same reason.
var laterFanoutFaults = []Kind{DeadFanout}

// relay is a fan-out server between the API server and the agents.
type relay struct {
	*servers.Fanout
	heard heard // by the server
}

// openFanout starts a fan-out server for nodes, if the seed has one.
func (r *run) openFanout(nodes []string) {
	if !r.Fanout {
		return
	}
	r.relay = &relay{}
	r.relay.Fanout = servers.NewFanout(nodes, func() (agent.Source, error) {
		source, err := r.newSource(r.lives.Add(1), true)
		return r.relay.heard.of(source), err
	}, r.log)
}

// hears is what records the objects for a node: all nodes of a fan-out server share it.
func (l *relay) hears() *heard {
	if l == nil {
		return &heard{}
	}
	return &l.heard
}

func (r *run) closeFanout() {
	if r.relay != nil {
		r.relay.Close()
	}
}

// objectSource is where an agent gets objects from, and its name: the fan-out server, or the API server.
func (r *run) objectSource(n *node) (string, agent.Source, error) {
	client := r.lives.Add(1)
	if r.relay == nil {
		s, err := r.newSource(client, false)
		return kube.Name, n.heard.of(s), err
	}
	name, s := r.relay.Source(n.name)
	return name, s, nil
}

// actFanout begins a fault of the fan-out server.
func (r *run) actFanout(a Action, n *node) {
	if r.relay != nil {
		r.actServer(a, func(f servers.Fault) func() { return r.relay.Begin(f, n.name) })
	}
}
