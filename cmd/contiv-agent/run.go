package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/source/typha"
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
		Long: `run is the agent: it follows Kubernetes objects, from an API server, from a fan-out server or from manifests, and keeps VPP
equal to them until it is told to stop (Ctrl-C, SIGTERM). What it has configured stays in VPP; the next start adopts it.

A fan-out server (contiv-agent fanout, or Calico's Typha) spares the API server one client for each node. Calico's Typha tells
policies, endpoints, Services and EndpointSlices of its cluster, but no ServiceCIDRs: give --service-cidr. Where Calico's IPAM hands
out blocks of addresses, it may give the NAT loopback to a pod, too: give --nat-loopback.

With --dataplane-driver policies are enforced by a program that Felix could start as its dataplane driver: this one under the name
contiv-felix-driver, or anybody else's. It is told the configuration (FelixHostname), all that follows from policies, nodes, their
prefixes and Services, in_sync, and then what changes; when it ends it is started again, with pauses up to 30 s, and told everything
again. One that does not read is not waited for: it is told once what has changed meanwhile. What it says of endpoints is in the
status command. The agent leaves access lists in VPP to it. A driver outside is not told which addresses stand in for clients
whose own a Service cannot keep (the NAT loopback): a pod that reaches itself through a Service is let in only if its policies
allow that address.

With --grpc-listen or --grpc-socket other programs add configuration to the same VPP, by the API of Contiv (rpc.DataChangeService,
rpc.DataResyncService). It is merged over what the agent wants itself, and never removed by it; what was acknowledged is kept in --grpc-db.

With --etcd-endpoints they do so by an etcd: keys /vnf-agent/LABEL/config/… as ligato's vpp-agent has them, values JSON. Each change of
etcd is one transaction, and what became of each key is written to /vnf-agent/LABEL/config-status/…, until the agent ends. A value that
cannot be used is named there and by the status command, and changes nothing.

For Services with a healthCheckNodePort it answers load balancers at that port, as kube-proxy does: 200 while a ready endpoint is on the
node and VPP is as it should be, 503 otherwise. It does so from the node's own network stack: where VPP has the node's addresses, it
must hand their packets to the node (a host interface with punting), or --health-check-addresses names others.

With an API server to talk to (--kubeconfig or --in-cluster) it says there what is not in VPP as objects ask for: in Events of Services and
policies, and, if it follows that API server itself, in conditions of those policies whose API has them. One Event is of one cause,
whatever the number of agents. With --lease-namespace it says how it is itself.

It serves /metrics, /healthz, /readyz and /livez at --listen, and its status at --status-socket. At port 10256 it answers as kube-proxy
does: /healthz is 503 while the Node is being deleted (or tainted for it by a cluster autoscaler), before the first sync, or while a
change waits for VPP for more than a minute, /livez for the last reason alone.`,
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
	f.agentFlags.add(cmd)
	f.logFlags.add(cmd)
	f.typha.add(cmd, "typha")
	f.grpc.add(cmd)
	f.etcd.add(cmd)
	f.report.add(cmd.Flags())
	f.file.add(cmd.Flags(), agentKind, newRun)
	fs := cmd.Flags()
	fs.StringVar(&f.source, "source", "", "where objects come from: manifest, kube or typha (default: what other flags name; typha before kube, which then only finds the endpoints of --typha-service)")
	fs.StringSliceVar(&f.manifests, "manifests", nil, "follow folders or files of Kubernetes YAML or JSON; - reads standard input once")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "follow the API server of this kubeconfig")
	fs.BoolVar(&f.inCluster, "in-cluster", false, "follow the API server of the cluster the agent runs in")
	fs.StringVar(&f.apiServer, "api-server", "", "address of the API server (https://host:port), in place of the kubeconfig's; an agent should not reach it by a cluster IP it programs itself")
	fs.StringSliceVar(&f.ignored, "ignore-policy-kinds", nil, "kinds of policies to leave out though the API server serves them, as RESOURCE.GROUP (adminnetworkpolicies.policy.networking.k8s.io, tiers.crd.projectcalico.org): what they deny is let through. Without it, the agent waits for the right to read every kind that is served")
	fs.StringVar(&f.node, "node", "", "name of this node (default: $NODE_NAME, or the name of the host)")
	socketFlag(fs, &f.vppSocket)
	lockFlag(fs, &f.vppLock)
	fs.BoolVar(&f.sim, "sim", false, "use the embedded VPP, with interfaces as a CNI would make them, instead of --vpp-socket")
	fs.BoolVar(&f.once, "once", false, "end after the first sync")
	fs.BoolVar(&f.demo, "demo", false, "after the first sync, say what was done and what happens to some packets (needs --manifests)")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:9191", "address of metrics and health; empty: none")
	fs.BoolVar(&f.profiling, "profiling", false, "serve /debug/pprof at --listen")
	fs.StringVar(&f.healthz, "healthz-bind-address", auto, "address of /healthz and /livez as kube-proxy has them, for load balancers; while it is taken (kube-proxy may have it) it is tried again; empty: none; auto: :10256, or with --sim none")
	fs.StringVar(&f.status, "status-socket", auto, "unix socket for the status command; empty: none; auto: $"+envStatusSocket+", or /run/contiv-agent/agent.sock, or contiv-agent/ in $XDG_RUNTIME_DIR or the cache folder for other users than root")
	fs.StringVar(&f.journal, "journal", auto, "file that remembers what of VPP is ours where VPP has no tags; empty: memory only; auto: /run/contiv-agent/journal for root and a real VPP")
	fs.DurationVar(&f.recheck, "recheck", agent.DefaultRecheck, "the time in which all that the agent made in VPP is compared once, part by part, with the desired state, and repaired; 0: only after a reconnect")
	fs.DurationVar(&f.sessions, "count-sessions", time.Second, "count NAT sessions this often, and free some when 80 % of the table are in use; more seldom without --stats-socket, because VPP then stops forwarding to count; 0: never")
	fs.StringVar(&f.stats, "stats-socket", auto, "stats socket of VPP: VPP counts what the rules of policies judge, and the policy command shows it; empty: VPP is not told to count; auto: stats.sock beside --vpp-socket")
	fs.StringSliceVar(&f.health, "health-check-addresses", nil, "where health checks of load balancers (spec.healthCheckNodePort) are answered, of the addresses of the node's own network stack; none: nowhere (default: everywhere, or with --node-port-addresses at those of the node)")
	fs.StringVar(&f.driver, "dataplane-driver", "", "enforce policies through this program, which is a dataplane driver of Felix's (messages on its file descriptors 3 and 4), rather than by the agent itself; it is started without arguments, and again when it ends. Services stay the agent's")
	return cmd
}

// config is the agent's configuration without its sources and its VPP. The error names everything that is wrong.
func (f *runFlags) config(log *slog.Logger) (agent.Config, error) {
	cfg, err := f.agentFlags.config()
	cfg.NodeName, cfg.Socket, cfg.Logger, cfg.Alone = nodeName(f.node), f.vppSocket, log, true
	cfg.LogLevel = &f.current
	if !f.sim {
		cfg.Lock = lockPath(f.vppLock, f.vppSocket)
	}
	cfg.Listen, cfg.Profiling, cfg.StatusSocket, cfg.Healthz = f.listen, f.profiling, statusSocket(f.status), healthzAddress(f.healthz, f.sim)
	cfg.Journal, cfg.Recheck, cfg.SessionsEvery = journalPath(f.journal, f.sim), f.recheck, f.sessions
	cfg.RuleCounters = f.ruleCounters()
	if c, ok := cfg.RuleCounters.(agent.SessionCounter); ok {
		cfg.SessionCounter = c
	}
	var errHealth error
	cfg.HealthChecks, errHealth = healthChecks(f.health)
	if f.once {
		cfg.Listen, cfg.StatusSocket, cfg.Healthz, cfg.HealthChecks = "", "", "", nil // gone before anybody could ask
	}
	return cfg, usage(errors.Join(err, errHealth))
}

// ruleCounters is where VPP counts; nil: it is not asked to.
func (f *runFlags) ruleCounters() agent.RuleCounters {
	switch {
	case f.stats == "" || f.sim:
		return nil
	case f.stats == auto: // unless startup.conf says otherwise
		return ifThere{vpp.Stats{Socket: filepath.Join(filepath.Dir(f.vppSocket), "stats.sock")}}
	}
	return vpp.Stats{Socket: f.stats}
}

// ifThere is the counters of a VPP that may have none.
type ifThere struct{ vpp.Stats }

// ACLMatches implements agent.RuleCounters.
func (s ifThere) ACLMatches(ctx context.Context, acls []uint32) (map[uint32][]vpp.Counter, error) {
	counters, err := s.Stats.ACLMatches(ctx, acls)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return counters, err
}

// sources are where objects come from. The error names everything that is wrong.
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

// complete is the whole configuration but for VPP, and for a driver. The error names everything that is wrong.
func (f *runFlags) complete(cmd *cobra.Command) (agent.Config, error) {
	log, errLog := f.logger(cmd.ErrOrStderr())
	cfg, errFlags := f.config(log)
	cfg.Settings = settings(cmd.Flags())
	var errSources, errGRPC, errReport error
	cfg.Sources, errSources = f.sources(log)
	if f.kubeconfig != "" || f.inCluster {
		if a := (&kube.Config{Kubeconfig: f.kubeconfig, Server: f.apiServer}).Addr(); a.IsValid() {
			cfg.APIServers = []netip.Addr{a}
		}
	}
	cfg.Reporter, errReport = f.report.reporter(cmd.Flags(), cfg.NodeName, f.once, log)
	cfg.External, errGRPC = f.grpc.source(log)
	stored, errEtcd := f.etcd.source(cmd, cfg.NodeName, f.once, log)
	errs := []error{errLog, errFlags, errSources, errReport, errGRPC, errEtcd}
	if f.once && len(cfg.External) > 0 {
		errs = append(errs, errors.New("--once: gone before anybody could call; --grpc-listen and --grpc-socket need an agent that goes on"))
	}
	if f.once && f.driver != "" {
		errs = append(errs, errors.New("--once: nobody knows when a driver outside is done; --dataplane-driver needs an agent that goes on"))
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
	limitSizes(&cfg, limitMemory(cfg.Logger, os.DirFS("/")), cfg.Logger)
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
		if cfg.Driver, err = newDriver(f.driver, socket, &cfg); err != nil {
			return err
		}
	}
	synced := make(chan *event.Committed, 1)
	cfg.OnCommitted = firstSync(synced)
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

// stopped makes the end that was asked for no error.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// plumb puts the embedded VPP and its CNI under the agent.
func plumb(cfg *agent.Config, v *sim.VPP) *cni.CNI {
	cfg.Dial = v.Dial
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
		cfg.Sources[name] = plumbed{src, c, cfg.Logger}
	}
	return c
}

// plumbed is a source whose pods get their interfaces before the agent hears of them.
type plumbed struct {
	agent.Source
	cni *cni.CNI
	log *slog.Logger
}

// Run implements agent.Source.
func (p plumbed) Run(ctx context.Context, emit func(event.Event)) error {
	return p.Source.Run(ctx, p.cni.Before(emit, func(err error) { p.log.Error("cni", "err", err) }))
}

// firstSync hands the first full resync that succeeded to ch.
func firstSync(ch chan<- *event.Committed) func(*event.Committed) {
	done := false
	return func(ev *event.Committed) {
		if !done && ev.Err == nil && ev.Seq != 0 && ev.Resync == event.Full {
			done = true
			ch <- ev
		}
	}
}

// settling is how long the first words wait for interfaces that the embedded VPP has made already: it tells the agent of them when it
// comes to it.
const settling = 10 * time.Second

// settled is the status of the agent when it knows of all interfaces of an embedded VPP.
func (f *runFlags) settled(ctx context.Context, a *agent.Agent) (*agent.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	pending := event.Pending.String()
	for {
		st, err := a.Status(ctx)
		if err != nil || !f.sim || st.InSync &&
			!slices.ContainsFunc(st.Policies, func(p agent.PolicyStatus) bool { return p.State == pending }) &&
			!slices.ContainsFunc(st.Services, func(s agent.ServiceStatus) bool { return s.State == pending }) {
			return st, err
		}
		select {
		case <-ctx.Done():
			return st, nil
		case <-tick.C:
		}
	}
}

// afterSync says what the first sync did, and with --demo what happens to some packets.
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
	fmt.Fprintln(w, "\nwhat happens to some packets:")
	for _, q := range cluster.Suggest() {
		trace.WriteText(w, cluster.Answer(q))
	}
	if !f.once {
		fmt.Fprintf(w, "\nrunning; edit a file in %v and VPP follows. Ctrl-C ends.\n", f.manifests)
	}
	return nil
}
