package agent

import (
	"net/http"
	"slices"

	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
)

// connectPods makes the node's network a source of values. Its interfaces need not be looked for, unless others are given by name.
func connectPods(cfg *Config) {
	if cfg.Pods == nil {
		return
	}
	cfg.External = append(slices.Clone(cfg.External), cfg.Pods.Network)
	if cfg.Override.Host == "" {
		cfg.Override.Host = podnet.Host
	}
	if cfg.Override.Overlay == "" {
		cfg.Override.Overlay = podnet.Overlay
	}
}

// newCNI returns the server for the CNI plugin; nil: another program connects pods.
func newCNI(cfg Config) *cni.Server {
	if cfg.Pods == nil {
		return nil
	}
	return cni.New(cni.Config{Network: cfg.Pods.Network, Spool: cfg.Pods.Spool, Logger: cfg.Process.Logger})
}

// withCNI adds the server for the CNI plugin to the handler of the agent's socket.
func (a *Agent) withCNI(handler http.Handler) http.Handler {
	if a.cni == nil {
		return handler
	}
	mux := http.NewServeMux()
	mux.Handle(protocol.Prefix, a.cni)
	mux.Handle("/", handler)
	return mux
}
