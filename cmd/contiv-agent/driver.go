package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/sim"
)

// newDriver returns a supervisor for a dataplane driver for Felix. If the driver is this program, its environment names the
// VPP, the known interfaces, and that it does not serve status and metrics. Variables that are already set stay.
func newDriver(path, socket string, cfg *agent.Config) (*felix.Supervisor, error) {
	env := map[string]string{
		"NODE_NAME": cfg.NodeName, envSocket: socket, envStatus: none, envListen: none, envJournal: driverJournal(cfg.VPPAgent.Journal),
		envView:   "pre-dnat", // nat44 translates
		envUplink: cfg.Override.Uplink, envOverlay: cfg.Override.Overlay, envHost: cfg.Override.Host,
	}
	return supervise(felix.SupervisorConfig{Path: path, Logger: cfg.Process.Logger.With("room", "driver")}, cfg.NodeName, env)
}

// supervise completes the configuration of a supervisor: it finds the program, and adds the variables of env that are not
// set.
func supervise(cfg felix.SupervisorConfig, node string, env map[string]string) (*felix.Supervisor, error) {
	found, err := exec.LookPath(cfg.Path)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return nil, usage(fmt.Errorf("driver %s: %w", cfg.Path, err))
	}
	cfg.Path, cfg.Parameters = found, map[string]string{"FelixHostname": node}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if _, set := os.LookupEnv(name); !set && env[name] != "" {
			cfg.Env = append(cfg.Env, name+"="+env[name])
		}
	}
	return felix.NewSupervisor(cfg), nil
}

// driverJournal returns the path of the driver's journal, beside the agent's.
func driverJournal(journal string) string {
	if journal == "" {
		return none
	}
	return journal + ".driver"
}

// serveSim serves the embedded VPP on a separate socket, for a driver in another process.
func serveSim(ctx context.Context, v *sim.VPP) (socket string, stop func(), err error) {
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
