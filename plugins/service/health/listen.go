package health

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// ServiceChanged implements renderer.ServiceListener.
func (s *Server) ServiceChanged(old, now *renderer.ContivService) {
	if now == nil {
		s.setCheck(old.ID, renderer.HealthCheck{})
		return
	}
	s.setCheck(now.ID, now.HealthCheck)
}

// UpdateNode implements renderer.NodeRenderer.
func (s *Server) UpdateNode(node renderer.NodeState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.listenAddresses()
	if s.node = node; !slices.Equal(was, s.listenAddresses()) {
		s.changed()
	}
	return nil
}

// setCheck records the health check of one Service.
func (s *Server) setCheck(id model.ServiceID, now renderer.HealthCheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.checks[id]
	if now.NodePort == 0 {
		delete(s.checks, id)
	} else {
		s.checks[id] = now
	}
	if was.NodePort == now.NodePort {
		return
	}
	s.dropOwner(was.NodePort, id)
	if now.NodePort != 0 {
		owners := s.owners[now.NodePort]
		at, _ := slices.BinarySearchFunc(owners, id, model.ServiceID.Compare)
		s.owners[now.NodePort] = slices.Insert(owners, at, id)
	}
	s.changed()
}

func (s *Server) dropOwner(port uint16, id model.ServiceID) {
	owners := s.owners[port]
	at, found := slices.BinarySearchFunc(owners, id, model.ServiceID.Compare)
	switch {
	case !found:
	case len(owners) == 1:
		delete(s.owners, port)
	default:
		s.owners[port] = slices.Delete(owners, at, at+1)
	}
}

// changed wakes Run.
func (s *Server) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
