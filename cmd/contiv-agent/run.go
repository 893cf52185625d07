package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/heap"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/configfile"
	"github.com/contiv-agent/contiv-agent/cmd/driver"
	"github.com/contiv-agent/contiv-agent/cmd/embedded"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/ui"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/trace"
)

// runFlags are the flags of run.
type runFlags struct {
	flags.Agent
	flags.Log
	file    configfile.File
	sources flags.Sources
	vpp     flags.VPP
	listen  flags.Listen
	grpc    flags.GRPC
	etcd    flags.Etcd
	pods    flags.Pods
	watch   struct {
		record flags.Recorder
		flows  flags.Flows
		page   ui.Beside
	}
	removals flags.Removals
	node     string
	driver   string
	once     bool
	demo     bool
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

With --hubble-listen, hubble, Hubble Relay and other clients of Cilium read the flows that --flows watches. They cannot change anything.

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
  contiv-agent run --in-cluster --flows 1s --hubble-listen unix:/run/contiv-agent/hubble.sock
  contiv-agent run --in-cluster --dataplane-driver /usr/local/bin/contiv-felix-driver`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.runAgent(cmd) },
	}
	f.Agent.AddFlags(cmd)
	fs := cmd.Flags()
	flags.Group(fs, flags.ForSources, func() { f.sources.AddFlags(cmd); f.removals.AddFlags(fs) })
	flags.Group(fs, flags.ForPrograms, func() { f.grpc.AddFlags(cmd); f.etcd.AddFlags(cmd) })
	flags.Group(fs, flags.ForVPP, func() { f.vpp.AddFlags(fs) })
	flags.Group(fs, flags.ForPods, func() { f.pods.AddFlags(fs) })
	flags.Group(fs, flags.ForObservers, func() { f.Log.AddFlags(cmd); f.listen.AddFlags(fs); f.watch.record.AddFlags(fs) })
	flags.Group(fs, flags.ForObservers, func() { f.watch.flows.AddFlags(fs); f.watch.page.AddFlags(fs) })
	f.file.AddFlags(fs, configfile.AgentKind, newRun)
	fs.StringVar(&f.node, "node", "", "name of this node (default: $NODE_NAME, or the name of the host)")
	fs.BoolVar(&f.once, "once", false, "end after the first sync")
	fs.BoolVar(&f.demo, "demo", false, "after the first sync, print a summary and the fate of some packets (needs --manifests)")
	fs.StringVar(&f.driver, "dataplane-driver", "", "this program, a dataplane driver for Felix (messages on its file descriptors 3 and 4), enforces policies instead of the agent. The agent starts it without arguments, and restarts it when it ends. The agent still serves Services")
	return cmd
}

// config returns the agent's configuration without its sources and its VPP. The error names all wrong flags.
func (f *runFlags) config(log *slog.Logger) (agent.Config, error) {
	cfg, err := f.Agent.Config()
	cfg.NodeName, cfg.Process.Logger, cfg.Process.LogLevel, cfg.Process.Alone = flags.NodeName(f.node), log, &f.Current, true
	f.vpp.Apply(&cfg)
	errListen := f.listen.Apply(&cfg, f.vpp.Sim)
	if f.once {
		cfg.Listen, cfg.Services.Health = config.Listeners{}, nil // the agent ends before a client could ask
	}
	return cfg, exit.Usage(errors.Join(err, errListen))
}

// complete returns the whole configuration except VPP and the driver. The error names all wrong flags.
func (f *runFlags) complete(cmd *cobra.Command) (agent.Config, error) {
	log, errLog := f.Logger(cmd.ErrOrStderr())
	cfg, errFlags := f.config(log)
	cfg.Process.Flags, cfg.Process.Version = flags.Settings(cmd.Flags()), version
	var errSources, errGRPC, errReport error
	cfg.Sources, errSources = f.sources.Sources(cfg.NodeName, version, !f.once, log)
	if f.demo && len(f.sources.Manifests) == 0 {
		errSources = errors.Join(errSources, errors.New("--demo needs --manifests"))
	}
	f.sources.Report.Pods = f.pods.Connect()
	cfg.Reporter, errReport = f.sources.Report.Reporter(cmd.Flags(), cfg.NodeName, f.once, log)
	cfg.External, errGRPC = f.grpc.Source(log)
	stored, errEtcd := f.etcd.Source(cmd, cfg.NodeName, f.once, log)
	errs := []error{errLog, errFlags, errSources, errReport, errGRPC, errEtcd, f.pods.Check(cfg.NodeName, f.vpp.Sim), f.removals.Check(), f.watch.flows.Check(), f.watch.page.Check(f.once)}
	if f.once && len(cfg.External) > 0 {
		errs = append(errs, errors.New("--once: the agent ends before a client can connect; --grpc-listen and --grpc-socket need an agent that keeps running"))
	}
	if f.once && f.driver != "" {
		errs = append(errs, errors.New("--once: the agent does not know when an external driver is done; --dataplane-driver needs an agent that keeps running"))
	}
	cfg.External = append(cfg.External, stored...)
	if errFlags == nil {
		errs = append(errs, cfg.Validate(), f.watch.record.Apply(&cfg, version))
	}
	return cfg, exit.Usage(errors.Join(errs...))
}

func (f *runFlags) runAgent(cmd *cobra.Command) error {
	errFile := f.file.Apply(cmd.Flags())
	if errFile != nil && !f.file.Check {
		return exit.Usage(errFile)
	}
	cfg, err := f.complete(cmd)
	if f.file.Check {
		return f.file.Report(cmd.OutOrStdout(), errFile, err)
	}
	if err != nil {
		return err
	}
	cfg.Limits = heap.Sizes(cfg.Limits, heap.Limit(cfg.Process.Logger, os.DirFS("/")), cfg.Process.Logger)
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	socket := f.vpp.Socket
	var v *sim.VPP // nil: not embedded
	if f.vpp.Sim {
		v = sim.New(sim.Config{Seed: 1, PuntLocal: true})
		defer v.Close()
		embedded.Plumb(&cfg, v)
		if f.driver != "" {
			var stop func()
			if socket, stop, err = embedded.Serve(ctx, v); err != nil {
				return err
			}
			defer stop()
		}
	}
	if f.driver != "" {
		if cfg.Policies.Driver, err = driver.New(f.driver, socket, &cfg); err != nil {
			return err
		}
	}
	server := f.sources.ServerHostPort(ctx)
	if a, err := netip.ParseAddrPort(server); err == nil { // else it is a name, or there is none
		cfg.Services.APIServers = []netip.Addr{a.Addr().Unmap()}
	}
	if err := f.pods.Open(&cfg, server, time.Now(), cfg.Process.Logger); err != nil {
		return err
	}
	f.removals.Apply(&cfg)
	if err := f.watch.flows.Apply(&cfg, version); err != nil {
		return err
	}
	removed, err := f.pods.Removal(ctx, &cfg, &f.sources)
	if err != nil {
		return err
	}
	defer func() { removed.End(ctx, cmd.Context().Err() != nil) }()
	if err := f.watch.page.Open(ctx); err != nil {
		return err
	}
	defer f.watch.page.Close()
	synced := make(chan *event.Committed, 1)
	cfg.Process.OnCommitted = firstSync(synced)
	a, err := agent.New(cfg)
	if err != nil {
		return exit.Usage(err)
	}
	ended := make(chan error, 1)
	var beside sync.WaitGroup
	go func() { ended <- a.Run(ctx) }()
	select {
	case err = <-ended:
		if f.once {
			return err // it did not come to its end
		}
		return stopped(cmd.Context(), err)
	case ev := <-synced:
		if err := f.afterSync(ctx, cmd.OutOrStdout(), a, ev); err != nil {
			cancel()
			return errors.Join(err, stopped(ctx, <-ended))
		}
		f.runBeside(ctx, cmd.OutOrStdout(), &beside, &cfg, v)
	}
	if f.once {
		cancel()
	}
	err = stopped(ctx, <-ended)
	cancel()
	beside.Wait()
	return err
}

// runBeside serves the page, and with --demo and --flows lets the pods of an embedded VPP dial Services, until ctx ends.
func (f *runFlags) runBeside(ctx context.Context, w io.Writer, running *sync.WaitGroup, cfg *agent.Config, v *sim.VPP) {
	if f.demo && v != nil && cfg.Process.Flows != nil {
		traffic := &embedded.Traffic{VPP: v, Node: cfg.NodeName, Socket: cfg.Listen.Status}
		running.Go(func() { traffic.Run(ctx) })
	}
	running.Go(func() {
		if err := f.watch.page.Serve(ctx, w, cfg.Listen.Status); err != nil {
			cfg.Process.Logger.Error("page", "err", err)
		}
	})
}

// stopped returns nil for an end that was requested.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
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
		if err != nil || !f.vpp.Sim || st.InSync &&
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
	where := ""
	if st.VPP.Simulated {
		where = ", on the simulated VPP"
	}
	fmt.Fprintf(w, "node %s: %d of %d services served by %d mappings, policies %d, %d messages to VPP, %s%s\n",
		st.Node, served, len(st.Services), st.Mappings, len(st.Policies), ev.Writes, ev.Took.Round(10*time.Microsecond), where)
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
	cluster, err := whatif.Load(ctx, f.sources.Manifests, &f.Agent, false, io.Discard)
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Fprintln(w, "\nfate of some packets:")
	for _, q := range cluster.Suggest() {
		trace.WriteText(w, cluster.Answer(q))
	}
	if !f.once {
		fmt.Fprintf(w, "\nrunning: edit a file in %v, and VPP follows. Ctrl-C ends it.\n", f.sources.Manifests)
	}
	return nil
}
