package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/feed"
	"github.com/contiv-agent/contiv-agent/cmd/configfile"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/httpserver"
)

// fanoutFlags are the flags of fanout.
type fanoutFlags struct {
	flags.Log
	file      configfile.File
	source    flags.FeedSource
	server    flags.FanoutServer
	gc        int
	metrics   string
	profiling bool
}

func newFanout() *cobra.Command {
	var f fanoutFlags
	cmd := &cobra.Command{
		Use:         "fanout",
		Annotations: map[string]string{exit.Serves: ""},
		Short:       "Serve the keys of a cluster to thousands of agents",
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
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := f.applySettings(cmd.Flags(), "CONTIV_FANOUT_")
			if f.file.Check {
				return f.file.Report(cmd.OutOrStdout(), err, f.complete(cmd, prometheus.NewRegistry(), &fanoutParts{}))
			}
			if err != nil {
				return exit.Usage(err)
			}
			return f.runFanout(cmd)
		},
	}
	f.Log.AddFlags(cmd)
	f.file.Bare = true
	f.file.AddFlags(cmd.Flags(), configfile.FanoutKind, newFanout)
	f.addFlags(cmd.Flags())
	return cmd
}

func (f *fanoutFlags) addFlags(fs *pflag.FlagSet) {
	f.source.AddFlags(fs)
	f.server.AddFlags(fs)
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
	return errors.Join(append(errs, f.file.Apply(fs))...)
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
	parts.log, errLog = f.Logger(cmd.ErrOrStderr())
	errConfig := f.server.Complete(version, parts.log, registry)
	parts.source, errSource = f.source.Feed(&f.server, version, cmd.InOrStdin(), parts.log)
	if errConfig == nil {
		parts.server, errServer = fanout.New(f.server.Config)
	}
	return exit.Usage(errors.Join(errLog, errConfig, errSource, errServer))
}

func (f *fanoutFlags) runFanout(cmd *cobra.Command) error {
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
	l, err := net.Listen("tcp", f.server.Addr())
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
	err = flags.Plaintext(server.Serve(ctx, l), "--cert, --key and --ca", "--insecure")
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
