package simulate

import (
	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// The kinds of faults of the API server, beside CutAPI, EmptyAPI and BackAPI.
const (
	SlowAPI   = servers.SlowAPI
	FailAPI   = servers.FailAPI
	CutWatch  = servers.CutWatch
	TearWatch = servers.TearWatch
	ExpireAPI = servers.ExpireAPI
	StaleAPI  = servers.StaleAPI
)

// apiFaults are drawn beside faults, so that the actions of a seed that were drawn before these kinds existed keep their numbers.
var apiFaults = []Kind{SlowAPI, FailAPI, CutWatch, TearWatch, ExpireAPI, StaleAPI}

// newSource returns the source of an agent or, with keys, of a fan-out server.
func (r *run) newSource(client uint64, keys bool) (agent.Source, error) {
	return servers.Source(r.server, client, keys, r.log)
}

// actServer lets a server begin an action, and end it after its time.
func (r *run) actServer(a Action, begin func(servers.Fault) (end func())) {
	if end := begin(servers.Fault{Kind: a.Kind, For: a.For, N: a.N}); end != nil {
		r.during(a, func() {}, end)
	}
}
