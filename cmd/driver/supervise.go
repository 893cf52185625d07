package driver

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

// New returns a supervisor for a dataplane driver for Felix. If the driver is this program, its environment names the
// VPP, the known interfaces, and that it does not serve status and metrics. Variables that are already set stay.
func New(path, socket string, cfg *agent.Config) (*felix.Supervisor, error) {
	env := map[string]string{
		"NODE_NAME": cfg.NodeName, EnvSocket: socket, EnvStatus: None, EnvListen: None, EnvJournal: driverJournal(cfg.VPPAgent.Journal),
		envView:   "pre-dnat", // nat44 translates
		envUplink: cfg.Override.Uplink, envOverlay: cfg.Override.Overlay, envHost: cfg.Override.Host,
	}
	return Supervise(felix.SupervisorConfig{Path: path, Logger: cfg.Process.Logger.With("room", "driver")}, cfg.NodeName, env)
}

// Supervise completes the configuration of a supervisor: it finds the program, and adds the variables of env that are not
// set.
func Supervise(cfg felix.SupervisorConfig, node string, env map[string]string) (*felix.Supervisor, error) {
	found, err := exec.LookPath(cfg.Path)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("driver %s: %w", cfg.Path, err))
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
		return None
	}
	return journal + ".driver"
}
