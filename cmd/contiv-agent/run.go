package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/agent/heap"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// runFlags are the flags of run.
type runFlags struct {
	agentFlags
	logFlags
	file       fileFlags
	typha      typhaFlags
	grpc       grpcFlags
	etcd       etcdFlags
	report     reportFlags
	source     string
	manifests  []string
	kubeconfig string
	inCluster  bool
	apiServer  string
	node       string
	vppSocket  string
	vppLock    string
	sim        bool
	once       bool
	demo       bool
	listen     string
	profiling  bool
	healthz    string
	status     string
	journal    string
	recheck    time.Duration
	sessions   time.Duration
	health     []string
	stats      string
	ignored    []string
	driver     string
}

func newRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent of a node",
		Long: `run is the agent: it follows Kubernetes objects from an API server, a fan-out server or manifests, and keeps VPP equal to
them until Ctrl-C or SIGTERM. VPP keeps the configuration, and the next start adopts it.

A fan-out server (contiv-agent fanout, or Calico's Typha) replaces one watch per node on the API server. Calico's Typha sends policies,
endpoints, Services and EndpointSlices of its cluster, but no ServiceCIDRs: give --service-cidr. If Calico's IPAM assigns blocks of
addresses, it may also assign the NAT loopback to a pod: give --nat-loopback.

With --dataplane-driver, a program that Felix could start as its dataplane driver enforces policies: this one under the name
contiv-felix-driver, or another. The agent sends it the configuration (FelixHostname), everything that follows from policies, nodes, their
prefixes and Services, in_sync, and then each change. The agent restarts a driver that ends, with pauses up to 30 s, and sends everything
again. The agent does not wait for a driver that does not read: it later sends the changes once, merged. The status command shows what the
driver reports about endpoints. The agent leaves VPP's access lists to the driver. The agent does not send a driver the NAT loopback,
the address that replaces clients' addresses where replies must return to this node: a pod that
reaches itself through a Service passes only if its policies allow that address.

With --grpc-listen or --grpc-socket, other programs add configuration to the same VPP by Contiv's API (rpc.DataChangeService,
rpc.DataResyncService). The agent merges it over its own desired state, and never removes it. --grpc-db keeps what was acknowledged.

With --etcd-endpoints, other programs add configuration through an etcd: keys /vnf-agent/LABEL/config/… as in ligato's vpp-agent, values in
JSON. Each change of etcd is one transaction. The agent writes the result of each key to /vnf-agent/LABEL/config-status/…, until it ends.
That status and the status command name a value that cannot be used; such a value changes nothing.

For Services with a healthCheckNodePort it answers load balancers at that port as kube-proxy does: 200 while a ready endpoint is on the node
and VPP is in sync, 503 otherwise. It listens in the node's own network stack: if VPP has the node's addresses, VPP must pass these
packets to the node (a host interface with punting), or --health-check-addresses names other addresses.

With an API server (--kubeconfig or --in-cluster) it reports objects that VPP does not serve as they ask: in Events of Services and policies,
and, if it follows that API server itself, in conditions of policies whose API has them. One Event reports one cause, whatever the
number of agents. With --lease-namespace it reports its own state.

It serves /metrics, /healthz, /readyz and /livez at --listen, and its status at --status-socket. At port 10256 it answers as kube-proxy
does. /healthz is 503 while the Node is being deleted (or tainted for deletion by a cluster autoscaler), before the first sync, or while a
change has waited for VPP for more than a minute; /livez only in the last case.`,
		Example: `  contiv-agent run --sim --manifests examples/guestbook --node node-1
  contiv-agent run --in-cluster --vpp-socket /run/vpp/api.sock
  contiv-agent run --kubeconfig ~/.kube/config --node worker-7 --uplink GigabitEthernet0/8/0
  contiv-agent run --source typha --typha-addr 10.0.0.1:5473 --typha-ca ca.crt --typha-cert tls.crt --typha-key tls.key --typha-cn typha-server
  contiv-agent run --source typha --in-cluster --typha-service calico-system/calico-typha --service-cidr 10.96.0.0/16
  contiv-agent run --in-cluster --grpc-socket /run/contiv-agent/grpc.sock --grpc-listen 0.0.0.0:9111 --grpc-cert tls.crt --grpc-key tls.key --grpc-ca ca.crt
  contiv-agent run --in-cluster --etcd-endpoints https://10.0.0.1:2379,https://10.0.0.2:2379 --etcd-ca ca.crt --etcd-cert tls.crt --etcd-key tls.key
  contiv-agent run --in-cluster --dataplane-driver /usr/local/bin/contiv-felix-driver`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.agentFlags.addFlags(cmd)
	f.logFlags.addFlags(cmd)
	f.typha.addFlags(cmd, "typha")
	f.grpc.addFlags(cmd)
	f.etcd.addFlags(cmd)
	f.report.addFlags(cmd.Flags())
	f.file.addFlags(cmd.Flags(), agentKind, newRun)
	fs := cmd.Flags()
	fs.StringVar(&f.source, "source", "", "source of objects: manifest, kube or typha (default: the one that other flags name; typha before kube, which then only finds the endpoints of --typha-service)")
	fs.StringSliceVar(&f.manifests, "manifests", nil, "follow folders or files of Kubernetes YAML or JSON; - reads standard input once")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "follow the API server of this kubeconfig")
	fs.BoolVar(&f.inCluster, "in-cluster", false, "follow the API server of the cluster the agent runs in")
	fs.StringVar(&f.apiServer, "api-server", "", "address of the API server (https://host:port), instead of the kubeconfig's; do not use a cluster IP that this agent programs")
	fs.StringSliceVar(&f.ignored, "ignore-policy-kinds", nil, "kinds of policies to ignore although the API server serves them, as RESOURCE.GROUP (adminnetworkpolicies.policy.networking.k8s.io, tiers.crd.projectcalico.org): packets that they deny pass. The agent waits for the right to read every served kind that is not named here")
	fs.StringVar(&f.node, "node", "", "name of this node (default: $NODE_NAME, or the name of the host)")
	socketFlag(fs, &f.vppSocket)
	lockFlag(fs, &f.vppLock)
	fs.BoolVar(&f.sim, "sim", false, "use the embedded VPP, with interfaces as a CNI makes them, instead of --vpp-socket")
	fs.BoolVar(&f.once, "once", false, "end after the first sync")
	fs.BoolVar(&f.demo, "demo", false, "after the first sync, print a summary and the fate of some packets (needs --manifests)")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:9191", "address of metrics and health; empty: none")
	fs.BoolVar(&f.profiling, "profiling", false, "serve /debug/pprof at --listen")
	fs.StringVar(&f.healthz, "healthz-bind-address", auto, "address of /healthz and /livez as kube-proxy serves them, for load balancers; while another process (kube-proxy) has it, the agent retries; empty: none; auto: :10256, or with --sim none")
	fs.StringVar(&f.status, "status-socket", auto, "unix socket for the status command; empty: none; auto: $"+envStatusSocket+", or /run/contiv-agent/agent.sock, or contiv-agent/ in $XDG_RUNTIME_DIR or the cache folder for other users than root")
	fs.StringVar(&f.journal, "journal", auto, "file that records the agent's objects in VPP that VPP keeps no tag for; empty: memory only; auto: /run/contiv-agent/journal for root and a real VPP")
	fs.DurationVar(&f.recheck, "recheck", config.DefaultRecheck, "period in which the agent compares all its objects in VPP once, part by part, with the desired state, and repairs them; 0: only after a reconnect")
	fs.DurationVar(&f.sessions, "count-sessions", time.Second, "count NAT sessions this often, and free some when 80 % of the table is in use; less often without --stats-socket, because VPP then stops forwarding while it counts; 0: never")
	fs.StringVar(&f.stats, "stats-socket", auto, "stats socket of VPP: VPP counts the packets that each rule of a policy matches, and the policy command shows them; empty: VPP does not count; auto: stats.sock beside --vpp-socket")
	fs.StringSliceVar(&f.health, "health-check-addresses", nil, "addresses of the node's own network stack that answer health checks of load balancers (spec.healthCheckNodePort); none: no address (default: all, or with --node-port-addresses the node's addresses in these ranges)")
	fs.StringVar(&f.driver, "dataplane-driver", "", "this program, a dataplane driver for Felix (messages on its file descriptors 3 and 4), enforces policies instead of the agent. The agent starts it without arguments, and restarts it when it ends. The agent still serves Services")
	return cmd
}

// config returns the agent's configuration without its sources and its VPP. The error names all wrong flags.
func (f *runFlags) config(log *slog.Logger) (agent.Config, error) {
	cfg, err := f.agentFlags.config()
	cfg.NodeName, cfg.VPP.Socket, cfg.Process.Logger, cfg.Process.Alone = nodeName(f.node), f.vppSocket, log, true
	cfg.Process.LogLevel = &f.current
	if !f.sim {
		cfg.Lock = lockPath(f.vppLock, f.vppSocket)
	}
	cfg.Listen.Metrics, cfg.Listen.Profiling, cfg.Listen.Status, cfg.Listen.Healthz = f.listen, f.profiling, statusSocket(f.status), healthzAddress(f.healthz, f.sim)
	cfg.VPPAgent.Journal, cfg.VPPAgent.Recheck, cfg.NATTable.Every = journalPath(f.journal, f.sim), f.recheck, f.sessions
	cfg.Policies.Counters = f.ruleCounters()
	if c, ok := cfg.Policies.Counters.(nattable.SessionCounter); ok {
		cfg.NATTable.Counter = c
	}
	var errHealth error
	cfg.Services.Health, errHealth = healthChecks(f.health)
	if f.once {
		cfg.Listen.Metrics, cfg.Listen.Status, cfg.Listen.Healthz, cfg.Services.Health = "", "", "", nil // the agent ends before a client could ask
	}
	return cfg, usage(errors.Join(err, errHealth))
}

// ruleCounters returns VPP's counters; nil: VPP does not count.
func (f *runFlags) ruleCounters() counters.RuleCounters {
	switch {
	case f.stats == "" || f.sim:
		return nil
	case f.stats == auto: // startup.conf may name another path
		return counters.IfThere{Stats: vpp.Stats{Socket: filepath.Join(filepath.Dir(f.vppSocket), "stats.sock")}}
	}
	return vpp.Stats{Socket: f.stats}
}

// sources returns the sources of objects. The error names all wrong flags.
func (f *runFlags) sources(log *slog.Logger) (map[string]agent.Source, error) {
	out := map[string]agent.Source{}
	errs := []error{f.checkSource()}
	if len(f.manifests) > 0 {
		cfg := manifest.Config{Paths: f.manifests, Watch: !f.once, Logger: log}
		if err := cfg.Validate(); err != nil {
			errs = append(errs, err)
		} else {
			out[manifest.Name] = manifest.New(cfg)
		}
	}
	var api *kube.Config
	if f.kubeconfig != "" || f.inCluster {
		api = &kube.Config{Kubeconfig: f.kubeconfig, Server: f.apiServer, IgnorePolicyKinds: f.ignored, Logger: log}
		errs = append(errs, api.Validate())
	}
	switch {
	case f.typha.given():
		cfg, err := f.typha.config(nodeName(f.node), api, log)
		if err != nil {
			errs = append(errs, err)
		} else {
			out[typha.Name] = f.report.behind(api, typha.New(cfg))
		}
	case api != nil && errors.Join(errs...) == nil:
		out[kube.Name] = f.report.follow(api)
	}
	if len(f.ignored) > 0 && (api == nil || f.typha.given()) {
		errs = append(errs, errors.New("--ignore-policy-kinds needs --kubeconfig or --in-cluster"))
	}
	if len(out) == 0 && errors.Join(errs...) == nil {
		errs = append(errs, errors.New("no source: give --manifests, --kubeconfig, --in-cluster, --typha-addr or --typha-service"))
	}
	if f.demo && len(f.manifests) == 0 {
		errs = append(errs, errors.New("--demo needs --manifests"))
	}
	return out, usage(errors.Join(errs...))
}

// complete returns the whole configuration except VPP and the driver. The error names all wrong flags.
func (f *runFlags) complete(cmd *cobra.Command) (agent.Config, error) {
	log, errLog := f.logger(cmd.ErrOrStderr())
	cfg, errFlags := f.config(log)
	cfg.Process.Flags = settings(cmd.Flags())
	var errSources, errGRPC, errReport error
	cfg.Sources, errSources = f.sources(log)
	if f.kubeconfig != "" || f.inCluster {
		if a := (&kube.Config{Kubeconfig: f.kubeconfig, Server: f.apiServer}).Addr(); a.IsValid() {
			cfg.Services.APIServers = []netip.Addr{a}
		}
	}
	cfg.Reporter, errReport = f.report.reporter(cmd.Flags(), cfg.NodeName, f.once, log)
	cfg.External, errGRPC = f.grpc.source(log)
	stored, errEtcd := f.etcd.source(cmd, cfg.NodeName, f.once, log)
	errs := []error{errLog, errFlags, errSources, errReport, errGRPC, errEtcd}
	if f.once && len(cfg.External) > 0 {
		errs = append(errs, errors.New("--once: the agent ends before a client can connect; --grpc-listen and --grpc-socket need an agent that keeps running"))
	}
	if f.once && f.driver != "" {
		errs = append(errs, errors.New("--once: the agent does not know when an external driver is done; --dataplane-driver needs an agent that keeps running"))
	}
	cfg.External = append(cfg.External, stored...)
	if errFlags == nil {
		errs = append(errs, cfg.Validate())
	}
	return cfg, usage(errors.Join(errs...))
}

func (f *runFlags) run(cmd *cobra.Command) error {
	errFile := f.file.apply(cmd.Flags())
	if errFile != nil && !f.file.check {
		return usage(errFile)
	}
	cfg, err := f.complete(cmd)
	if f.file.check {
		return f.file.report(cmd.OutOrStdout(), errFile, err)
	}
	if err != nil {
		return err
	}
	cfg.Limits = heap.Sizes(cfg.Limits, heap.Limit(cfg.Process.Logger, os.DirFS("/")), cfg.Process.Logger)
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	socket := f.vppSocket
	if f.sim {
		v := sim.New(sim.Config{Seed: 1, PuntLocal: true})
		defer v.Close()
		plumb(&cfg, v)
		if f.driver != "" {
			var stop func()
			if socket, stop, err = serveSim(ctx, v); err != nil {
				return err
			}
			defer stop()
		}
	}
	if f.driver != "" {
		if cfg.Policies.Driver, err = newDriver(f.driver, socket, &cfg); err != nil {
			return err
		}
	}
	synced := make(chan *event.Committed, 1)
	cfg.Process.OnCommitted = firstSync(synced)
	a, err := agent.New(cfg)
	if err != nil {
		return usage(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	select {
	case err = <-ended:
		return stopped(cmd.Context(), err)
	case ev := <-synced:
		if err := f.afterSync(ctx, cmd.OutOrStdout(), a, ev); err != nil {
			cancel()
			return errors.Join(err, stopped(ctx, <-ended))
		}
	}
	if f.once {
		cancel()
	}
	return stopped(ctx, <-ended)
}

// stopped returns nil for an end that was requested.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// plumb connects the agent to the embedded VPP and its CNI.
func plumb(cfg *agent.Config, v *sim.VPP) *cni.CNI {
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
	c := cni.New(v, cfg.NodeName)
	for name, src := range cfg.Sources {
		cfg.Sources[name] = plumbed{src, c, cfg.Process.Logger}
	}
	return c
}

// plumbed is a source whose pods get their interfaces before the agent receives the pods.
type plumbed struct {
	agent.Source
	cni *cni.CNI
	log *slog.Logger
}

// Run implements agent.Source.
func (p plumbed) Run(ctx context.Context, emit func(event.Event)) error {
	return p.Source.Run(ctx, p.cni.Before(emit, func(err error) { p.log.Error("cni", "err", err) }))
}

// firstSync sends the first successful full resync to ch.
func firstSync(ch chan<- *event.Committed) func(*event.Committed) {
	done := false
	return func(ev *event.Committed) {
		if !done && ev.Err == nil && ev.Seq != 0 && ev.Resync == event.Full {
			done = true
			ch <- ev
		}
	}
}

// settling bounds how long the summary waits for the agent to learn of interfaces that the embedded VPP has already made.
const settling = 10 * time.Second

// settled returns the agent's status once the agent knows all interfaces of an embedded VPP.
func (f *runFlags) settled(ctx context.Context, a *agent.Agent) (*status.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	pending := event.Pending.String()
	for {
		st, err := a.Status(ctx)
		if err != nil || !f.sim || st.InSync &&
			!slices.ContainsFunc(st.Policies, func(p status.Policy) bool { return p.State == pending }) &&
			!slices.ContainsFunc(st.Services, func(s status.Service) bool { return s.State == pending }) {
			return st, err
		}
		select {
		case <-ctx.Done():
			return st, nil
		case <-tick.C:
		}
	}
}

// afterSync prints a summary of the first sync, and with --demo the fate of some packets.
func (f *runFlags) afterSync(ctx context.Context, w io.Writer, a *agent.Agent, ev *event.Committed) error {
	st, err := f.settled(ctx, a)
	if err != nil {
		return err
	}
	served := 0
	for _, s := range st.Services {
		if s.State == event.Configured.String() {
			served++
		}
	}
	fmt.Fprintf(w, "node %s: %d of %d services served by %d mappings, policies %d, %d messages to VPP, %s\n",
		st.Node, served, len(st.Services), st.Mappings, len(st.Policies), ev.Writes, ev.Took.Round(10*time.Microsecond))
	for _, s := range st.Services {
		fmt.Fprintf(w, "  %-11s %s\n", s.State, s.Name)
		for _, reason := range s.Reasons {
			fmt.Fprintf(w, "              %s\n", reason)
		}
	}
	for _, p := range st.Policies {
		fmt.Fprintf(w, "  %-11s %s\n", p.State, p.Object)
		for _, reason := range p.Reasons {
			fmt.Fprintf(w, "              %s\n", reason)
		}
	}
	if !f.demo {
		return nil
	}
	cluster, err := loadCluster(ctx, f.manifests, &f.agentFlags, false, io.Discard)
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Fprintln(w, "\nfate of some packets:")
	for _, q := range cluster.Suggest() {
		trace.WriteText(w, cluster.Answer(q))
	}
	if !f.once {
		fmt.Fprintf(w, "\nrunning: edit a file in %v, and VPP follows. Ctrl-C ends it.\n", f.manifests)
	}
	return nil
}
