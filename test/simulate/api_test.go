package simulate

import (
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
	"github.com/contiv-agent/contiv-agent/test/simulate/apiserver"
)

// The kinds of faults of the API server, beside CutAPI, EmptyAPI and BackAPI.
const (
	SlowAPI   Kind = "API server slow"                // For: up to N ms for each answer and each event
	FailAPI   Kind = "API server answers errors"      // For: to N of 1,000 requests
	CutWatch  Kind = "API watches end"                // N even: in order; For: the server has no room for others, in every second one
	TearWatch Kind = "API answers are torn"           // For: events and lists end in their middle; N even: clients have to list
	ExpireAPI Kind = "API server forgets its history" // 410 Gone
	StaleAPI  Kind = "API server's cache is behind"   // For: clients reach a server with the state before the last change
)

// apiFaults are drawn beside faults, so that the actions of a seed that were drawn before these kinds existed keep their numbers.
var apiFaults = []Kind{SlowAPI, FailAPI, CutWatch, TearWatch, ExpireAPI, StaleAPI}

// newSource returns source/kube as agents and, with keys, fan-out servers have it, on a connection to the server in memory.
func (r *run) newSource(client uint64, keys bool) (agent.Source, error) {
	cfg := &rest.Config{Host: "http://api.server", Transport: r.server.Client(client)}
	typed, err := api.New(cfg)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return kube.New(kube.Config{Client: typed, Dynamic: untyped, Keys: keys, Logger: r.log}), nil
}

// actAPI begins an action of the API server.
func (r *run) actAPI(a Action) {
	begin := func(change func(f *apiserver.Faults, by int)) {
		r.during(a, func() { r.server.Change(func(f *apiserver.Faults) { change(f, 1) }) }, func() { r.server.Change(func(f *apiserver.Faults) { change(f, -1) }) })
	}
	switch a.Kind {
	case CutAPI:
		begin(func(f *apiserver.Faults, by int) { f.Cut += by })
	case EmptyAPI: // its watches report it, or a list after them
		begin(func(f *apiserver.Faults, by int) { f.Empty += by })
		if a.N%2 == 0 {
			r.server.Expire()
		}
	case SlowAPI:
		begin(func(f *apiserver.Faults, by int) { f.Slow += time.Duration(by*a.N) * time.Millisecond })
	case FailAPI:
		begin(func(f *apiserver.Faults, by int) { f.Errors += by * a.N })
	case TearWatch:
		begin(func(f *apiserver.Faults, by int) { f.Torn += by })
		if a.N%2 == 0 {
			r.server.Expire()
		}
	case CutWatch:
		if a.N%4 >= 2 {
			begin(func(f *apiserver.Faults, by int) { f.Few += by })
		}
		r.server.EndWatches(a.N%2 == 0)
	case ExpireAPI:
		r.server.Expire()
	case StaleAPI:
		r.during(a, r.server.FallBehind, func() { r.server.Change(func(f *apiserver.Faults) { f.Behind-- }) })
	}
}
