package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/feed"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// fanoutFlags are the flags of fanout.
type fanoutFlags struct {
	logFlags
	file       fileFlags
	listen     string
	manifests  []string
	kubeconfig string
	inCluster  bool
	apiServer  string
	ignored    []string
	upstream   []string
	service    string
	lines      string
	syncers    []string
	older      bool

	server fanout.Config
	tls    fanout.TLSFiles
	up     typha.TLS
	upOpen bool

	gc        int
	metrics   string
	profiling bool
}

func newFanout() *cobra.Command {
	var f fanoutFlags
	cmd := &cobra.Command{
		Use:   "fanout",
		Short: "Serve the keys of a cluster to thousands of agents",
		Long: `fanout follows one source and serves its keys to the agents of all nodes, so that an API server has one watcher instead of one per
node. It speaks the sync protocol of Calico's Typha: agents (run --source typha), Felix, other clients of Calico and other fan-out servers
may connect.

The source is an API server, a folder of manifests, another fan-out server or a Typha (--upstream), or lines of JSON (--keys).
When it loses the source, it serves the last known state. It converts objects to keys and values as Calico's converters do.

A client gets a snapshot and then every change. The server disconnects clients that do not answer pings, fall behind too far, or are too
many; with --balance-service or --balance-servers also those beyond its share. On SIGTERM it disconnects them one after the other, within
--drain; a second SIGTERM ends it at once.

--cert, --key and --ca secure connections: clients need a certificate of that authority and, with --client-cn or --client-uri, one of
these names. Without them, it serves only clients on loopback, unless --insecure is set.

Every flag can also be set by the environment (CONTIV_FANOUT_MAX_CONNECTIONS for --max-connections) and by a file of YAML
(--config; maxConnections: 500); the command line wins, then the environment.

It serves /metrics, /healthz, /readyz, /livez and /status at --metrics.`,
		Example: `  contiv-agent fanout --in-cluster --balance-service kube-system/contiv-fanout --cert tls.crt --key tls.key --ca ca.crt --client-cn contiv-agent
  contiv-agent fanout --manifests examples/guestbook --listen 127.0.0.1:5473
  contiv-agent fanout --upstream typha.calico-system.svc:5473 --upstream-cert c.pem --upstream-key k.pem --upstream-ca ca.pem --upstream-cn typha-server
  echo '{"key":"/calico/v1/Ready","value":"true"}{"status":"in-sync"}' | jq -c . | contiv-agent fanout --keys -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := f.applySettings(cmd.Flags(), "CONTIV_FANOUT_")
			if f.file.check {
				return f.file.report(cmd.OutOrStdout(), err, f.complete(cmd, prometheus.NewRegistry(), &fanoutParts{}))
			}
			if err != nil {
				return usage(err)
			}
			return f.run(cmd)
		},
	}
	f.logFlags.addFlags(cmd)
	f.file.bare = true
	f.file.addFlags(cmd.Flags(), fanoutKind, newFanout)
	f.addFlags(cmd.Flags())
	return cmd
}

func (f *fanoutFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.listen, "listen", auto, fmt.Sprintf("address for clients; auto: :%d with TLS or --insecure, 127.0.0.1:%d otherwise", wire.Port, wire.Port))
	fs.BoolVar(&f.server.Insecure, "insecure", false, "serve clients that are not on loopback without TLS: everyone who reaches --listen can then read all keys")
	fs.StringSliceVar(&f.manifests, "manifests", nil, "follow folders or files of Kubernetes YAML or JSON; - reads standard input once")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "follow the API server of this kubeconfig")
	fs.BoolVar(&f.inCluster, "in-cluster", false, "follow the API server of the cluster the server runs in")
	fs.StringVar(&f.apiServer, "api-server", "", "address of the API server (https://host:port), instead of the kubeconfig's")
	fs.StringSliceVar(&f.ignored, "ignore-policy-kinds", nil, "kinds of policies to ignore although the API server serves them, as RESOURCE.GROUP; packets that they deny pass")
	fs.StringSliceVar(&f.upstream, "upstream", nil, "follow another fan-out server or Typha, host:port; several are alternatives")
	fs.StringVar(&f.service, "upstream-service", "", "follow the servers behind this Service, namespace/name or a DNS name")
	fs.StringVar(&f.lines, "keys", "", `follow keys and values as lines of JSON from this file, - is standard input: {"key":K,"value":V}, {"key":K,"deleted":true}, {"status":"in-sync"}; "syncer" names another set than felix`)
	fs.StringSliceVar(&f.syncers, "syncers", []string{"felix", "bgp", "tunnel-ip-allocation", "node-status"}, "sets of keys to serve")
	fs.BoolVar(&f.older, "no-modern-policy-keys", false, "serve policies only under their keys up to Calico 3.31, also to clients from 3.32 on")

	c := &f.server
	fs.IntVar(&c.MaxConnections, "max-connections", 10000, "limit of connections; the server closes further ones at once")
	fs.DurationVar(&c.MaxBehind, "max-behind", 300*time.Second, "disconnect a client that has not received a change after this time")
	fs.DurationVar(&c.Grace, "grace", 300*time.Second, "how long after its snapshot a client may be behind further")
	fs.Int64Var(&c.MaxBehindBytes, "max-behind-bytes", 256<<20, "bytes of changes that the server keeps for clients that are behind; it disconnects clients that are behind further")
	fs.DurationVar(&c.BatchEvery, "batch", 0, "minimum time between two publications of changes; 0: 1 ms, and 25 µs for each client")
	fs.DurationVar(&c.PingEvery, "ping", 10*time.Second, "time between pings; Felix disconnects after 30 s without a ping")
	fs.DurationVar(&c.PongWithin, "pong-within", 60*time.Second, "disconnect a client that has not answered a ping for this time")
	fs.DurationVar(&c.HelloWithin, "hello-within", 10*time.Second, "disconnect a client that has not sent its hello within this time")
	fs.DurationVar(&c.WriteWithin, "write-within", 120*time.Second, "disconnect a client that has read nothing for this time")
	fs.IntVar(&c.Snapshots, "snapshots", 0, "number of clients that get snapshots at a time, while they read fast; 0: eight for each processor, at least 64")
	fs.DurationVar(&c.Drain, "drain", 20*time.Second, "disconnect clients within this time at the end; 0: at once")
	fs.StringVar(&c.Balance.Service, "balance-service", "", "namespace/name of the Service whose ready endpoints are all servers: the server disconnects clients beyond its share")
	fs.IntVar(&c.Balance.Servers, "balance-servers", 0, "number of servers, without such a Service; 0: never disconnect clients for balance")
	fs.IntVar(&c.Balance.High, "balance-high", 140, "percent of its share above which a server disconnects clients, one per second")
	fs.IntVar(&c.Balance.Low, "balance-low", 115, "percent of its share at which it stops disconnecting")
	fs.DurationVar(&c.Balance.After, "balance-after", 30*time.Second, "how long it must have had too many clients before it starts")
	fs.DurationVar(&c.Balance.Rest, "balance-rest", 5*time.Minute, "pause afterwards; longer while clients reconnect")

	fs.StringVar(&f.tls.Cert, "cert", "", "certificate of the server, in PEM; the server reads --cert, --key and --ca again when they change")
	fs.StringVar(&f.tls.Key, "key", "", "key of the certificate")
	fs.StringVar(&f.tls.CA, "ca", "", "certificate authority of the clients")
	fs.StringVar(&f.tls.Client.CN, "client-cn", "", "common name that clients must have")
	fs.StringVar(&f.tls.Client.URI, "client-uri", "", "URI among the alternative names that clients must have; with both, either is enough")
	fs.BoolVar(&f.upOpen, "upstream-insecure", false, "follow an --upstream that is not on loopback without TLS: everyone on the path can then write all keys")
	fs.StringVar(&f.up.Cert, "upstream-cert", "", "client certificate for --upstream, in PEM")
	fs.StringVar(&f.up.Key, "upstream-key", "", "key of that certificate")
	fs.StringVar(&f.up.CA, "upstream-ca", "", "certificate authority of --upstream")
	fs.StringVar(&f.up.Server.CN, "upstream-cn", "", "common name that --upstream must have")
	fs.StringVar(&f.up.Server.URI, "upstream-uri", "", "URI that --upstream must have; with both, either is enough")

	fs.IntVar(&f.gc, "gc-percent", 50, "percentage that memory may grow before garbage collection; GOGC wins")
	fs.StringVar(&f.metrics, "metrics", "127.0.0.1:9192", "address of metrics and health; empty: none")
	fs.BoolVar(&f.profiling, "profiling", false, "serve /debug/pprof at --metrics")
}

// applySettings sets the flags that the command line does not set, from the environment and then from a file. The error
// names all errors.
func (f *fanoutFlags) applySettings(fs *pflag.FlagSet, prefix string) error {
	var errs []error
	fs.VisitAll(func(flag *pflag.Flag) {
		value := os.Getenv(prefix + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_")))
		if value == "" || flag.Changed { // an empty variable counts as unset
			return
		}
		if err := fs.Set(flag.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag.Name, err))
		}
	})
	return errors.Join(append(errs, f.file.apply(fs))...)
}

// source returns the source of keys; exactly one kind must be given.
func (f *fanoutFlags) source(in io.Reader, log *slog.Logger) (*feed.Feed, error) {
	out := &feed.Feed{Syncers: f.server.Syncers, Modern: len(f.server.Modern) > 0, Logger: log, Objects: map[string]feed.Source{}}
	kinds := 0
	for _, given := range []bool{len(f.manifests) > 0 || f.kubeconfig != "" || f.inCluster, len(f.upstream) > 0 || f.service != "", f.lines != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, errors.New("give one source: --manifests, --kubeconfig or --in-cluster; --upstream or --upstream-service; or --keys")
	}
	if len(f.manifests) > 0 {
		cfg := manifest.Config{Paths: f.manifests, Watch: true, Keys: true, Logger: log}
		if err := cfg.Validate(); err != nil {
			return nil, err
		}
		out.Objects[manifest.Name] = manifest.New(cfg)
	}
	if f.kubeconfig != "" || f.inCluster {
		cfg := kube.Config{Kubeconfig: f.kubeconfig, Server: f.apiServer, IgnorePolicyKinds: f.ignored, Keys: true, Logger: log}
		if err := cfg.Validate(); err != nil {
			return nil, err
		}
		out.Objects[kube.Name] = kube.New(cfg)
	}
	if len(f.upstream) > 0 || f.service != "" {
		out.Upstream = &typha.Config{Addrs: f.upstream, Service: f.service, TLS: f.up, Insecure: f.upOpen, Version: version, Logger: log}
		return out, plaintext(out.Upstream.Validate(), "--upstream-ca, --upstream-cert and --upstream-key, and --upstream-cn or --upstream-uri", "--upstream-insecure")
	}
	if f.lines == "-" {
		out.Lines = in
	} else if f.lines != "" {
		file, err := os.Open(f.lines)
		if err != nil {
			return nil, err
		}
		out.Lines = file // open until the program ends
	}
	return out, nil
}

// serverConfig completes the server's configuration.
func (f *fanoutFlags) serverConfig(log *slog.Logger, registry *prometheus.Registry) (err error) {
	for _, s := range f.syncers {
		f.server.Syncers = append(f.server.Syncers, wire.SyncerType(s))
	}
	if !f.older && slices.Contains(f.server.Syncers, wire.Felix) {
		f.server.Modern = []wire.SyncerType{wire.Felix}
	}
	f.server.Version, f.server.Logger, f.server.Registerer = version, log, registry
	if f.tls != (fanout.TLSFiles{}) {
		if f.server.Insecure {
			return errors.New("--insecure: --cert, --key and --ca secure connections: give one of both")
		}
		if f.server.TLS, err = f.tls.Config(); err != nil {
			return fmt.Errorf("--cert, --key and --ca: %w", err)
		}
	}
	return f.checkListen()
}

// listenAddr returns the address for clients: loopback, unless TLS secures connections or --insecure is set.
func (f *fanoutFlags) listenAddr() string {
	switch {
	case f.listen != auto:
		return f.listen
	case f.server.TLS != nil || f.server.Insecure:
		return ":" + strconv.Itoa(wire.Port)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(wire.Port))
}

// checkListen refuses a plaintext listener outside loopback before it is opened.
func (f *fanoutFlags) checkListen() error {
	host, _, err := net.SplitHostPort(f.listenAddr())
	if err != nil || f.server.TLS != nil || f.server.Insecure || httpserver.LoopbackHost(host) {
		return nil // opening it reports the error
	}
	return plaintext(fmt.Errorf("--listen %s: %w", f.listen, fanout.ErrPlaintext), "--cert, --key and --ca", "--insecure")
}

// fanoutParts are the parts of a fan-out server.
type fanoutParts struct {
	log    *slog.Logger
	source *feed.Feed
	server *fanout.Server
}

// complete makes the parts. The error names all errors.
func (f *fanoutFlags) complete(cmd *cobra.Command, registry *prometheus.Registry, parts *fanoutParts) error {
	var errLog, errSource, errServer error
	parts.log, errLog = f.logger(cmd.ErrOrStderr())
	errConfig := f.serverConfig(parts.log, registry)
	parts.source, errSource = f.source(cmd.InOrStdin(), parts.log)
	if errConfig == nil {
		parts.server, errServer = fanout.New(f.server)
	}
	return usage(errors.Join(errLog, errConfig, errSource, errServer))
}

func (f *fanoutFlags) run(cmd *cobra.Command) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(f.gc) // nearly all memory is keys, which stay: half the default saves a quarter of it
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var parts fanoutParts
	if err := f.complete(cmd, registry, &parts); err != nil {
		return err
	}
	source, server := parts.source, parts.server
	l, err := net.Listen("tcp", f.listenAddr())
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), l.Addr())
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	if f.metrics != "" {
		stop, err := f.observe(ctx, server.Handler(registry, f.profiling), parts.log)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		defer stop()
	}
	sourceEnded := make(chan struct{})
	feeding, stopFeeding := context.WithCancel(context.WithoutCancel(ctx)) // changes flow while clients are disconnected
	go func() {
		defer close(sourceEnded)
		if err := source.Run(feeding, server.Publish); err != nil && feeding.Err() == nil {
			cancel(fmt.Errorf("source: %w", err))
		}
	}()
	err = plaintext(server.Serve(ctx, l), "--cert, --key and --ca", "--insecure")
	stopFeeding()
	<-sourceEnded
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// observe serves metrics and health until the returned function is called.
func (f *fanoutFlags) observe(ctx context.Context, handler http.Handler, log *slog.Logger) (stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.metrics)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // metrics stay available while clients are disconnected
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = httpserver.HTTP(ctx, l, handler, log) // ends with its context
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}
