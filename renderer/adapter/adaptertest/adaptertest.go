// Package adaptertest turns a renderer of pure functions into a test of path independence. Invariant: it calls the
// renderer as the service processor does, and compares only what the sink received.
package adaptertest

import (
	"maps"
	"net"
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// World limits the random services, nodes and interfaces.
type World struct {
	Cluster    func(name string) []string // addresses a service may have
	External   []string
	Endpoints  []string
	Local      func(endpoint string) bool // the endpoint is on this node
	NodeIPs    []string
	Interfaces []string
	Node       func(t *rapid.T) renderer.NodeState
}

// Service draws the service default/name.
func (w World) Service(t *rapid.T, name string) *renderer.ContivService {
	svc := renderer.NewContivService()
	svc.ID = model.ServiceID{Namespace: "default", Name: name}
	svc.TrafficPolicy = renderer.TrafficPolicyType(rapid.IntRange(0, 1).Draw(t, "policy"))
	svc.InternalTrafficPolicy = renderer.TrafficPolicyType(rapid.IntRange(0, 1).Draw(t, "internal"))
	svc.SessionAffinityTimeout = rapid.SampledFrom([]uint32{0, 600}).Draw(t, "affinity")
	for _, ip := range rapid.SliceOfN(rapid.SampledFrom(w.Cluster(name)), 1, 2).Draw(t, "cluster") {
		svc.ClusterIPs.Add(net.ParseIP(ip))
	}
	for _, ip := range rapid.SliceOfN(rapid.SampledFrom(w.External), 0, 3).Draw(t, "external") {
		svc.ExternalIPs.Add(net.ParseIP(ip))
	}
	for _, port := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(t, "ports")] {
		svc.Ports[port] = &renderer.ServicePort{
			Protocol: rapid.SampledFrom([]renderer.ProtocolType{renderer.TCP, renderer.UDP, renderer.SCTP}).Draw(t, "protocol"),
			Port:     rapid.Uint16Range(1, 4).Draw(t, "port"), NodePort: rapid.Uint16Range(0, 2).Draw(t, "node port"),
		}
		for _, ip := range rapid.SliceOfN(rapid.SampledFrom(w.Endpoints), 0, 4).Draw(t, "endpoints") {
			svc.Backends[port] = append(svc.Backends[port], &renderer.ServiceBackend{IP: net.ParseIP(ip), Port: 8080, Local: w.Local(ip)})
		}
	}
	return svc
}

// Addresses draws the addresses of all nodes.
func (w World) Addresses(t *rapid.T) *renderer.IPAddresses {
	set := renderer.NewIPAddresses()
	for _, ip := range rapid.SliceOf(rapid.SampledFrom(w.NodeIPs)).Draw(t, "node IPs") {
		set.Add(net.ParseIP(ip))
	}
	return set
}

// Shuffled returns the service with its endpoints in another order.
func Shuffled(t *rapid.T, svc *renderer.ContivService) *renderer.ContivService {
	other := *svc
	other.Backends = map[string][]*renderer.ServiceBackend{}
	for _, port := range slices.Backward(slices.Sorted(maps.Keys(svc.Backends))) {
		other.Backends[port] = rapid.Permutation(svc.Backends[port]).Draw(t, "order")
	}
	return &other
}

// Renderer is the renderer under test.
type Renderer interface {
	renderer.ServiceRendererAPI
	renderer.NodeRenderer
}

// IncrementalIsResync fails unless, after any sequence of calls, the sink holds what one Resync of the final state
// gives. Fresh returns a renderer and the map in which its sink keeps the values of each owner.
func IncrementalIsResync(t *rapid.T, w World, fresh func() (Renderer, map[string][]string)) {
	var (
		state = renderer.NewResyncEventData()
		now   = map[string]*renderer.ContivService{}
		n     renderer.NodeState
		r, b  = fresh()
	)
	_ = r.UpdateNode(n)
	name := func(t *rapid.T) string { return rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name") }
	t.Repeat(map[string]func(*rapid.T){
		"service": func(t *rapid.T) {
			id := name(t)
			svc := w.Service(t, id)
			if old := now[id]; old == nil {
				_ = r.AddService(svc)
			} else {
				_ = r.UpdateService(old, svc, nil)
			}
			now[id] = svc
		},
		"delete": func(t *rapid.T) {
			id := name(t)
			if old := now[id]; old != nil {
				_ = r.DeleteService(old, nil)
				delete(now, id)
			}
		},
		"node": func(t *rapid.T) { n = w.Node(t); _ = r.UpdateNode(n) },
		"node IPs": func(t *rapid.T) {
			state.NodeIPs = w.Addresses(t)
			_ = r.UpdateNodePortServices(state.NodeIPs.Copy(), nil)
		},
		"interfaces": func(t *rapid.T) {
			names := rapid.SliceOf(rapid.SampledFrom(w.Interfaces)).Draw(t, "names")
			state.FrontendIfs, state.BackendIfs = renderer.NewInterfaces(names...), renderer.NewInterfaces(names...)
			_ = r.UpdateLocalFrontendIfs(nil, state.FrontendIfs.Copy())
			_ = r.UpdateLocalBackendIfs(nil, state.BackendIfs.Copy())
		},
		"resync": func(t *rapid.T) { delete(now, name(t)); _ = r.Resync(resyncOf(state, now)) },
		"": func(t *rapid.T) {
			f, want := fresh()
			_ = f.UpdateNode(n)
			_ = f.Resync(resyncOf(state, now))
			if diff := cmp.Diff(want, b); diff != "" {
				t.Fatalf("-resync +incremental\n%s", diff)
			}
		},
	})
}

func resyncOf(state *renderer.ResyncEventData, now map[string]*renderer.ContivService) *renderer.ResyncEventData {
	ev := &renderer.ResyncEventData{NodeIPs: state.NodeIPs.Copy(), FrontendIfs: state.FrontendIfs.Copy(), BackendIfs: state.BackendIfs.Copy()}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		ev.Services = append(ev.Services, now[name])
	}
	return ev
}
