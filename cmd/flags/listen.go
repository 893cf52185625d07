package flags

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
)

// Listen are the flags of an agent's listeners.
type Listen struct {
	metrics   string
	profiling bool
	healthz   string
	status    string
	checks    []string
	verify    time.Duration
}

// AddFlags adds the flags.
func (f *Listen) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.metrics, "listen", "127.0.0.1:9191", "address of metrics and health; empty: none")
	fs.BoolVar(&f.profiling, "profiling", false, "serve /debug/pprof at --listen")
	fs.StringVar(&f.healthz, "healthz-bind-address", Auto, "address of /healthz and /livez as kube-proxy serves them, for load balancers; while another process (kube-proxy) has it, the agent retries; empty: none; auto: :10256, or with --sim none")
	fs.StringVar(&f.status, "status-socket", Auto, "unix socket for the status command; empty: none; auto: $"+EnvStatusSocket+", or /run/contiv-agent/agent.sock, or contiv-agent/ in $XDG_RUNTIME_DIR or the cache folder for other users than root")
	fs.DurationVar(&f.verify, "verify-every", 0, "period in which the agent proves, as the verify command does, that VPP does what its objects mean: for metrics, the status and the log. VPP does not forward while it dumps its state; 0: only when the verify command asks")
	fs.StringSliceVar(&f.checks, "health-check-addresses", nil, "addresses of the node's own network stack that answer health checks of load balancers (spec.healthCheckNodePort); none: no address (default: all, or with --node-port-addresses the node's addresses in these ranges)")
}

// Apply writes the flags into the configuration of an agent with VPP, or with the embedded one.
func (f *Listen) Apply(cfg *agent.Config, embedded bool) (err error) {
	cfg.Listen.Metrics, cfg.Listen.Profiling, cfg.Listen.Status, cfg.Listen.Healthz = f.metrics, f.profiling, StatusSocket(f.status), healthzAddress(f.healthz, embedded)
	if cfg.Process.VerifyEvery = f.verify; f.verify < 0 {
		return exit.Usage(fmt.Errorf("--verify-every %s: must not be negative", f.verify))
	}
	cfg.Services.Health, err = healthChecks(f.checks)
	return err
}

// healthChecks reads --health-check-addresses; nil: no health checks are served.
func healthChecks(list []string) (*health.Config, error) {
	if slices.Equal(list, []string{"none"}) {
		return nil, nil
	}
	cfg := &health.Config{}
	for _, text := range list {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, exit.Usage(fmt.Errorf("--health-check-addresses %s: must be addresses, or only none", text))
		}
		cfg.Addresses = append(cfg.Addresses, a)
	}
	return cfg, nil
}
