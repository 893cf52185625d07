package servers

import (
	"log/slog"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
	"github.com/contiv-agent/contiv-agent/test/simulate/apiserver"
)

// The kinds of faults of the API server.
const (
	CutAPI    Kind = "API server unreachable"         // For
	EmptyAPI  Kind = "API server empty"               // For: it has no objects; N even: clients have to list
	SlowAPI   Kind = "API server slow"                // For: up to N ms for each answer and each event
	FailAPI   Kind = "API server answers errors"      // For: to N of 1,000 requests
	CutWatch  Kind = "API watches end"                // N even: in order; For: the server has no room for others, in every second one
	TearWatch Kind = "API answers are torn"           // For: events and lists end in their middle; N even: clients have to list
	ExpireAPI Kind = "API server forgets its history" // 410 Gone
	StaleAPI  Kind = "API server's cache is behind"   // For: clients reach a server with the state before the last change
)

// Source returns source/kube as agents and, with keys, fan-out servers have it, on a connection to the server in memory.
func Source(s *apiserver.Server, client uint64, keys bool, log *slog.Logger) (*kube.Source, error) {
	cfg := &rest.Config{Host: "http://api.server", Transport: s.Client(client)}
	typed, err := api.New(cfg)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return kube.New(kube.Config{Client: typed, Dynamic: untyped, Keys: keys, Logger: log}), nil
}

// BeginAPI begins a fault of the API server. end ends it; nil: it has no duration.
func BeginAPI(s *apiserver.Server, a Fault) (end func()) {
	begin := func(change func(f *apiserver.Faults, by int)) func() {
		s.Change(func(f *apiserver.Faults) { change(f, 1) })
		return func() { s.Change(func(f *apiserver.Faults) { change(f, -1) }) }
	}
	switch a.Kind {
	case CutAPI:
		end = begin(func(f *apiserver.Faults, by int) { f.Cut += by })
	case EmptyAPI: // its watches report it, or a list after them
		end = begin(func(f *apiserver.Faults, by int) { f.Empty += by })
		if a.N%2 == 0 {
			s.Expire()
		}
	case SlowAPI:
		end = begin(func(f *apiserver.Faults, by int) { f.Slow += time.Duration(by*a.N) * time.Millisecond })
	case FailAPI:
		end = begin(func(f *apiserver.Faults, by int) { f.Errors += by * a.N })
	case TearWatch:
		end = begin(func(f *apiserver.Faults, by int) { f.Torn += by })
		if a.N%2 == 0 {
			s.Expire()
		}
	case CutWatch:
		if a.N%4 >= 2 {
			end = begin(func(f *apiserver.Faults, by int) { f.Few += by })
		}
		s.EndWatches(a.N%2 == 0)
	case ExpireAPI:
		s.Expire()
	case StaleAPI:
		s.FallBehind()
		end = func() { s.Change(func(f *apiserver.Faults) { f.Behind-- }) }
	}
	return end
}
