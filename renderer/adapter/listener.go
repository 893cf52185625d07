package adapter

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// listening passes on each change of a Service, and after a resync only what differs from before.
type listening struct {
	to       renderer.ServiceListener
	services map[model.ServiceID]*renderer.ContivService
}

// Listen returns a renderer that passes changes of Services to a listener. Its calls never fail.
func Listen(to renderer.ServiceListener) renderer.ServiceRendererAPI {
	l := &listening{to: to, services: map[model.ServiceID]*renderer.ContivService{}}
	if node, ok := to.(renderer.NodeRenderer); ok {
		return &listeningToNode{listening: l, NodeRenderer: node}
	}
	return l
}

// listeningToNode passes the node's state on as well.
type listeningToNode struct {
	*listening
	renderer.NodeRenderer
}

func (l *listening) changeService(id model.ServiceID, now *renderer.ContivService) {
	old := l.services[id]
	if old == now {
		return
	}
	if delete(l.services, id); now != nil {
		l.services[id] = now
	}
	l.to.ServiceChanged(old, now)
}

// AddService implements renderer.ServiceRendererAPI.
func (l *listening) AddService(svc *renderer.ContivService) error {
	l.changeService(svc.ID, svc)
	return nil
}

// UpdateService implements renderer.ServiceRendererAPI.
func (l *listening) UpdateService(_, svc *renderer.ContivService, _ []*renderer.ContivService) error {
	return l.AddService(svc)
}

// DeleteService implements renderer.ServiceRendererAPI.
func (l *listening) DeleteService(svc *renderer.ContivService, _ []*renderer.ContivService) error {
	l.changeService(svc.ID, nil)
	return nil
}

// Resync implements renderer.ServiceRendererAPI.
func (l *listening) Resync(ev *renderer.ResyncEventData) error {
	l.passNodeIPs(ev.NodeIPs)
	stays := make(map[model.ServiceID]struct{}, len(ev.Services))
	for _, svc := range ev.Services {
		stays[svc.ID] = struct{}{}
	}
	for _, id := range slices.SortedFunc(maps.Keys(l.services), model.ServiceID.Compare) {
		if _, ok := stays[id]; !ok {
			l.changeService(id, nil)
		}
	}
	for _, svc := range ev.Services {
		l.changeService(svc.ID, svc)
	}
	return nil
}

// UpdateNodePortServices implements renderer.ServiceRendererAPI.
func (l *listening) UpdateNodePortServices(nodeIPs *renderer.IPAddresses, _ []*renderer.ContivService) error {
	l.passNodeIPs(nodeIPs)
	return nil
}

func (l *listening) passNodeIPs(nodeIPs *renderer.IPAddresses) {
	if to, ok := l.to.(renderer.NodeIPsListener); ok {
		to.NodeIPsChanged(nodeIPs)
	}
}

// UpdateLocalFrontendIfs implements renderer.ServiceRendererAPI. Interfaces do not matter to a listener.
func (l *listening) UpdateLocalFrontendIfs(_, _ renderer.Interfaces) error { return nil }

// UpdateLocalBackendIfs implements renderer.ServiceRendererAPI. Interfaces do not matter to a listener.
func (l *listening) UpdateLocalBackendIfs(_, _ renderer.Interfaces) error { return nil }
