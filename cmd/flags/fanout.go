package flags

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/feed"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// FeedSource are the flags of the source of keys that a fan-out server follows.
type FeedSource struct {
	manifests  []string
	kubeconfig string
	inCluster  bool
	apiServer  string
	ignored    []string
	upstream   []string
	service    string
	lines      string
	tls        typha.TLS // of upstream
	open       bool
}

// AddFlags adds the flags.
func (f *FeedSource) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.manifests, "manifests", nil, "follow folders or files of Kubernetes YAML or JSON; - reads standard input once")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "follow the API server of this kubeconfig")
	fs.BoolVar(&f.inCluster, "in-cluster", false, "follow the API server of the cluster the server runs in")
	fs.StringVar(&f.apiServer, "api-server", "", "address of the API server (https://host:port), instead of the kubeconfig's. Empty with --in-cluster: as for run")
	fs.StringSliceVar(&f.ignored, "ignore-policy-kinds", nil, "kinds of policies to ignore although the API server serves them, as RESOURCE.GROUP; packets that they deny pass")
	fs.StringSliceVar(&f.upstream, "upstream", nil, "follow another fan-out server or Typha, host:port; several are alternatives")
	fs.StringVar(&f.service, "upstream-service", "", "follow the servers behind this Service, namespace/name or a DNS name")
	fs.StringVar(&f.lines, "keys", "", `follow keys and values as lines of JSON from this file, - is standard input: {"key":K,"value":V}, {"key":K,"deleted":true}, {"status":"in-sync"}; "syncer" names another set than felix`)
	fs.BoolVar(&f.open, "upstream-insecure", false, "follow an --upstream that is not on loopback without TLS: everyone on the path can then write all keys")
	fs.StringVar(&f.tls.Cert, "upstream-cert", "", "client certificate for --upstream, in PEM")
	fs.StringVar(&f.tls.Key, "upstream-key", "", "key of that certificate")
	fs.StringVar(&f.tls.CA, "upstream-ca", "", "certificate authority of --upstream")
	fs.StringVar(&f.tls.Server.CN, "upstream-cn", "", "common name that --upstream must have")
	fs.StringVar(&f.tls.Server.URI, "upstream-uri", "", "URI that --upstream must have; with both, either is enough")
}

// Feed returns the source of keys for a server; exactly one kind must be given.
func (f *FeedSource) Feed(server *FanoutServer, version string, in io.Reader, log *slog.Logger) (*feed.Feed, error) {
	out := &feed.Feed{Syncers: server.Config.Syncers, Modern: len(server.Config.Modern) > 0, Logger: log, Objects: map[string]feed.Source{}}
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
		cfg := (&Sources{Kubeconfig: f.kubeconfig, InCluster: f.inCluster, APIServer: f.apiServer}).api(log)
		cfg.IgnorePolicyKinds, cfg.Keys = f.ignored, true
		if err := cfg.Validate(); err != nil {
			return nil, err
		}
		out.Objects[kube.Name] = kube.New(*cfg)
	}
	if len(f.upstream) > 0 || f.service != "" {
		out.Upstream = &typha.Config{Addrs: f.upstream, Service: f.service, TLS: f.tls, Insecure: f.open, Version: version, Logger: log}
		return out, Plaintext(out.Upstream.Validate(), "--upstream-ca, --upstream-cert and --upstream-key, and --upstream-cn or --upstream-uri", "--upstream-insecure")
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

// FanoutServer are the flags of a fan-out server.
type FanoutServer struct {
	Config  fanout.Config
	listen  string
	syncers []string
	older   bool
	tls     fanout.TLSFiles
}

// AddFlags adds the flags.
func (f *FanoutServer) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.listen, "listen", Auto, fmt.Sprintf("address for clients; auto: :%d with TLS or --insecure, 127.0.0.1:%d otherwise", wire.Port, wire.Port))
	fs.BoolVar(&f.Config.Insecure, "insecure", false, "serve clients that are not on loopback without TLS: everyone who reaches --listen can then read all keys")
	fs.StringSliceVar(&f.syncers, "syncers", []string{"felix", "bgp", "tunnel-ip-allocation", "node-status"}, "sets of keys to serve")
	fs.BoolVar(&f.older, "no-modern-policy-keys", false, "serve policies only under their keys up to Calico 3.31, also to clients from 3.32 on")

	c := &f.Config
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
}

// Complete completes the server's configuration.
func (f *FanoutServer) Complete(version string, log *slog.Logger, registry *prometheus.Registry) (err error) {
	for _, s := range f.syncers {
		f.Config.Syncers = append(f.Config.Syncers, wire.SyncerType(s))
	}
	if !f.older && slices.Contains(f.Config.Syncers, wire.Felix) {
		f.Config.Modern = []wire.SyncerType{wire.Felix}
	}
	f.Config.Version, f.Config.Logger, f.Config.Registerer = version, log, registry
	if f.tls != (fanout.TLSFiles{}) {
		if f.Config.Insecure {
			return errors.New("--insecure: --cert, --key and --ca secure connections: give one of both")
		}
		if f.Config.TLS, err = f.tls.Config(); err != nil {
			return fmt.Errorf("--cert, --key and --ca: %w", err)
		}
	}
	return f.checkListen()
}

// Addr returns the address for clients: loopback, unless TLS secures connections or --insecure is set.
func (f *FanoutServer) Addr() string {
	switch {
	case f.listen != Auto:
		return f.listen
	case f.Config.TLS != nil || f.Config.Insecure:
		return ":" + strconv.Itoa(wire.Port)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(wire.Port))
}

// checkListen refuses a plaintext listener outside loopback before it is opened.
func (f *FanoutServer) checkListen() error {
	host, _, err := net.SplitHostPort(f.Addr())
	if err != nil || f.Config.TLS != nil || f.Config.Insecure || httpserver.LoopbackHost(host) {
		return nil // opening it reports the error
	}
	return Plaintext(fmt.Errorf("--listen %s: %w", f.listen, fanout.ErrPlaintext), "--cert, --key and --ca", "--insecure")
}
