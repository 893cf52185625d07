package network

import (
	"net"
	"sync"
)

// Joint is one listener for several networks: a server whose clients have different faults. The next Join of a network replaces it.
type Joint struct {
	mu      sync.Mutex
	accept  *sync.Cond
	waiting []*end
	ended   bool
}

// Join returns a listener for all these networks.
func Join(all ...*Network) *Joint {
	j := &Joint{}
	j.accept = sync.NewCond(&j.mu)
	for _, n := range all {
		n.mu.Lock()
		n.joint = j
		n.mu.Unlock()
	}
	return j
}

func (j *Joint) listens() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.ended
}

func (j *Joint) offer(e *end) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting = append(j.waiting, e)
	j.accept.Signal()
}

// Accept implements net.Listener.
func (j *Joint) Accept() (net.Conn, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.waiting) == 0 && !j.ended {
		j.accept.Wait()
	}
	if j.ended {
		return nil, net.ErrClosed
	}
	c := j.waiting[0]
	j.waiting = j.waiting[1:]
	return c, nil
}

// Close implements net.Listener. Connections go on; clients are refused until the next Join.
func (j *Joint) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = true
	j.accept.Broadcast()
	return nil
}

// Addr implements net.Listener.
func (j *Joint) Addr() net.Addr { return loopback() }
