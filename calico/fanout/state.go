package fanout

import (
	"sync"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// Server sends its sources' keys to all clients. Create with New, feed with Publish, run with Serve.
type Server struct {
	cfg    Config
	m      *metrics
	caches map[set]*cache
	words  words
	slots  chan struct{}

	mu       sync.Mutex
	conns    map[uint64]*conn
	nextID   uint64
	draining bool
	balancer balancer
	handlers sync.WaitGroup
}

// set is a set of keys in one of its forms.
type set struct {
	syncer wire.SyncerType
	modern bool
}

func (s set) String() string {
	if s.modern {
		return string(s.syncer) + "/modern"
	}
	return string(s.syncer)
}
