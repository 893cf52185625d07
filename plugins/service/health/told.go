package health

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// AddService implements renderer.ServiceRendererAPI.
func (s *Server) AddService(svc *renderer.ContivService) error {
	s.set(svc.ID, svc.HealthCheck)
	return nil
}

// UpdateService implements renderer.ServiceRendererAPI.
func (s *Server) UpdateService(_, svc *renderer.ContivService, _ []*renderer.ContivService) error {
	return s.AddService(svc)
}

// DeleteService implements renderer.ServiceRendererAPI.
func (s *Server) DeleteService(svc *renderer.ContivService, _ []*renderer.ContivService) error {
	s.set(svc.ID, renderer.HealthCheck{})
	return nil
}

// Resync implements renderer.ServiceRendererAPI.
func (s *Server) Resync(ev *renderer.ResyncEventData) error {
	s.mu.Lock()
	gone := make(map[model.ServiceID]struct{}, len(s.checks))
	for id := range s.checks {
		gone[id] = struct{}{}
	}
	s.mu.Unlock()
	for _, svc := range ev.Services {
		delete(gone, svc.ID)
		s.set(svc.ID, svc.HealthCheck)
	}
	for id := range gone {
		s.set(id, renderer.HealthCheck{})
	}
	return nil
}

// UpdateNode implements renderer.NodeRenderer.
func (s *Server) UpdateNode(node renderer.NodeState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.addresses()
	if s.node = node; !slices.Equal(was, s.addresses()) {
		s.changed()
	}
	return nil
}

// UpdateNodePortServices implements renderer.ServiceRendererAPI. What of it matters here comes with UpdateNode.
func (s *Server) UpdateNodePortServices(*renderer.IPAddresses, []*renderer.ContivService) error {
	return nil
}

// UpdateLocalFrontendIfs implements renderer.ServiceRendererAPI: interfaces of VPP do not matter.
func (s *Server) UpdateLocalFrontendIfs(_, _ renderer.Interfaces) error { return nil }

// UpdateLocalBackendIfs implements renderer.ServiceRendererAPI: interfaces of VPP do not matter.
func (s *Server) UpdateLocalBackendIfs(_, _ renderer.Interfaces) error { return nil }

// set takes over what one service asks for.
func (s *Server) set(id model.ServiceID, now renderer.HealthCheck) {
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
	s.drop(was.NodePort, id)
	if now.NodePort != 0 {
		owners := s.owners[now.NodePort]
		at, _ := slices.BinarySearchFunc(owners, id, model.ServiceID.Compare)
		s.owners[now.NodePort] = slices.Insert(owners, at, id)
	}
	s.changed()
}

func (s *Server) drop(port uint16, id model.ServiceID) {
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
