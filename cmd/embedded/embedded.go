// Package embedded connects an agent to the embedded VPP, whose interfaces follow the agent's objects as a CNI would make them.
//
// Invariant: the interface of a pod exists before the agent receives the pod.
package embedded

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// Plumb connects the agent to the embedded VPP and its CNI.
func Plumb(cfg *agent.Config, v *sim.VPP) *cni.CNI {
	cfg.VPP.Dial = v.Dial
	located := cni.Located()
	for _, o := range []struct{ flag, found *string }{
		{&cfg.Override.Uplink, &located.Uplink}, {&cfg.Override.Overlay, &located.Overlay}, {&cfg.Override.Host, &located.Host},
	} {
		if *o.flag == "" {
			*o.flag = *o.found
		}
	}
	if len(cfg.Override.HostIPs) == 0 {
		cfg.Override.HostIPs = located.HostIPs
	}
	c, log := cni.New(v, cfg.NodeName), cfg.Process.Logger
	for name, src := range cfg.Sources {
		cfg.Sources[name] = c.Before(src, func(err error) { log.Error("cni", "err", err) })
	}
	return c
}

// Serve serves the embedded VPP on a separate socket, for a driver in another process.
func Serve(ctx context.Context, v *sim.VPP) (socket string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "contiv-agent-sim-")
	if err != nil {
		return "", nil, err
	}
	socket = filepath.Join(dir, "sim.sock")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = v.Serve(ctx, l) // until stop
	}()
	return socket, func() {
		cancel()
		<-done
		_ = os.RemoveAll(dir)
	}, nil
}
