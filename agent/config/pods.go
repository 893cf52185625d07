package config

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/plugins/podnet/takeover"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/sever"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/rcu"
)

// Pods is the node's network. A nil *Pods stands for one that another program makes.
type Pods struct {
	Network *podnet.Network
	ToNodes string // name of VPP's interface to other nodes
	Spool   string // folder with the DELs that found no agent; "": none
	// List says by a file whether the node can serve pods; nil: another program does.
	List *cni.Publisher
	// NIC gives the node's NIC to VPP; nil: the kernel keeps it.
	NIC *takeover.Takeover
	// Expedite shortens the kernel's waits while VPP makes or removes an interface of a pod.
	Expedite rcu.Expedite
	// Kernel are the kinds of the kernel's values for an agent whose VPP is a simulation; nil: it has none.
	Kernel []*descriptor.Descriptor
	// Connections ends TCP connections of a network namespace to dead addresses and returns how many, for a simulation; nil: sever.Connections.
	Connections func(namespace string, dead func(netip.AddrPort) bool) (int, error)
	// Listener serves the CNI plugin and the status in place of the status socket, for a simulation; nil: the socket does.
	Listener net.Listener
}

// Socket returns what serves the CNI plugin and the status.
func (p *Pods) Socket(ctx context.Context, path string) (net.Listener, error) {
	if p != nil && p.Listener != nil {
		return p.Listener, nil
	}
	return httpserver.Unix(ctx, path)
}

// ConnectPods makes the node's network a source of values, and the kernel a part of the Services' way to VPP. Its interfaces need not be looked for,
// unless others are given by name.
func (c *Config) ConnectPods() {
	if c.Pods == nil {
		return
	}
	c.External = append(slices.Clone(c.External), c.Pods.Network)
	c.Services.Refusal = podnet.RefusalOf(c.Pods.Network)
	c.Services.More = append(slices.Clone(c.Services.More), podnet.NewFront)
	if c.Override.Host == "" {
		c.Override.Host = podnet.Host
	}
	if c.Override.Overlay == "" {
		c.Override.Overlay = c.Pods.ToNodes
	}
}

// Watch returns an emit for sources, from which the network learns of Nodes and Pods. silent returns why VPP is taken for hung; "": it answers.
func (p *Pods) Watch(emit func(event.Event), silent func() string) func(event.Event) {
	if p == nil {
		return emit
	}
	return p.Network.Watch(emit, silent)
}

// Refusal returns why VPP does not get the node's NIC, although it was asked for; "": it does, or nobody asked.
func (p *Pods) Refusal() string {
	if p == nil {
		return ""
	}
	return p.NIC.Refusal()
}

// Disconnected returns what knows that a pod of the node has no network any more, by the removal of its attachment; nil: nothing knows.
func (p *Pods) Disconnected(node string) func(model.PodID, string) bool {
	if p == nil {
		return nil
	}
	return func(id model.PodID, of string) bool { return of == node && !podnet.Attached(p.Network, id) }
}

// Namespace returns the path of the network namespace of a pod. It is safe for concurrent use.
func (p *Pods) Namespace(id model.PodID) (string, error) {
	if p == nil {
		return "", errors.New("it knows the network namespaces of pods only with its own CNI plugin (run --cni)")
	}
	return podnet.NamespaceOf(p.Network, id)
}

// Sever ends TCP connections of pods and of the node to addresses whose translations are lost.
func (p *Pods) Sever(dead func(netip.AddrPort) bool, log *slog.Logger) {
	if p == nil {
		return
	}
	end := p.Connections
	if end == nil {
		end = sever.Connections
	}
	ended, failed := 0, error(nil)
	for _, at := range append(podnet.NamespacesOf(p.Network), "/proc/self/ns/net") {
		n, err := end(at, dead)
		ended, failed = ended+n, errors.Join(failed, err)
	}
	if failed != nil {
		log.Warn("connections to Services whose translations are lost may hang", "ended", ended, "err", failed)
	} else if ended > 0 {
		log.Info("connections to Services ended: VPP has lost their translations", "connections", ended)
	}
}

// Server returns the server for the CNI plugin; nil: there is none.
func (p *Pods) Server(log *slog.Logger) *cni.Server {
	if p == nil {
		return nil
	}
	return cni.New(cni.Config{Network: p.Network, Spool: p.Spool, Logger: log})
}

// Serve runs the server until ctx ends, each part by start. vppPID returns VPP's process; 0: none.
func (p *Pods) Serve(ctx context.Context, server *cni.Server, vppPID func() uint32, log *slog.Logger, start func(func() error)) {
	if p == nil {
		return
	}
	start(func() error { p.Expedite.Hasten(ctx, vppPID); return nil })
	start(func() error { server.Run(ctx); return nil })
	if p.NIC != nil {
		start(func() error { p.NIC.Run(ctx); return nil })
	}
	if p.List != nil {
		start(func() error { p.List.Run(ctx, p.Network.Status, log); return nil })
	}
}

// WithCNI adds the server for the CNI plugin, nil for none, to the handler of the agent's socket.
func WithCNI(server *cni.Server, handler http.Handler) http.Handler {
	if server == nil {
		return handler
	}
	mux := http.NewServeMux()
	mux.Handle(protocol.Prefix, server)
	mux.Handle("/", handler)
	return mux
}
