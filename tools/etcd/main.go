// Command etcd is an etcd on loopback, or a member of one, for tests and for `make run ETCD=1`. It says on standard output where it listens, and
// ends with its standard input or the command it was given.
//
//	etcd [flags]                            until standard input ends or a signal comes
//	etcd [flags] -- contiv-agent run …      until the command ends, which gets --etcd-endpoints
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// startTime is how long a start may take; a machine with slow disks is slow.
const startTime = 30 * time.Second

type flags struct {
	listen, data, node string
	name, cluster      string
	tls                transport.TLSInfo
	maxRequest         uint
}

func main() {
	var f flags
	flag.StringVar(&f.listen, "listen", "127.0.0.1:0", "address for clients; port 0: a free one")
	flag.StringVar(&f.data, "data", "", "folder of the data; empty: a temporary one, removed at the end")
	flag.StringVar(&f.node, "node", "node-1", "node in the words about how to put a key")
	flag.StringVar(&f.name, "name", "default", "which of -cluster this is")
	flag.StringVar(&f.cluster, "cluster", "", "members of a cluster, as name=http://address-for-its-peers, with commas; empty: this is the only one")
	flag.StringVar(&f.tls.CertFile, "cert", "", "certificate: clients speak TLS")
	flag.StringVar(&f.tls.KeyFile, "key", "", "its private key")
	flag.StringVar(&f.tls.TrustedCAFile, "ca", "", "who signs clients' certificates: they have to have one")
	flag.UintVar(&f.maxRequest, "max-request-bytes", embed.DefaultMaxRequestBytes, "how long a request may be")
	flag.Parse()
	err := run(&f, flag.Args())
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode()) // it has said why
	case err != nil:
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(f *flags, command []string) error {
	if f.data == "" {
		dir, err := os.MkdirTemp("", "contiv-etcd-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		f.data = dir
	}
	server, endpoint, err := start(f)
	if err != nil {
		return err
	}
	defer server.Close()
	if len(command) > 0 {
		return with(command, endpoint, f.node)
	}
	fmt.Println(endpoint)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent process has ended
		stop()
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return err
	}
}

// start returns when clients are served.
func start(f *flags) (*embed.Etcd, string, error) {
	scheme := "http"
	if !f.tls.Empty() {
		scheme, f.tls.ClientCertAuth = "https", f.tls.TrustedCAFile != ""
	}
	clients := url.URL{Scheme: scheme, Host: f.listen}
	peers := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // there are none
	for member := range strings.SplitSeq(f.cluster, ",") {
		if name, address, _ := strings.Cut(member, "="); name == f.name {
			peers.Host = strings.TrimPrefix(address, "http://")
		}
	}
	cfg := embed.NewConfig()
	cfg.Name = f.name
	cfg.Dir, cfg.LogLevel, cfg.MaxRequestBytes, cfg.ClientTLSInfo = f.data, "panic", f.maxRequest, f.tls
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	cfg.BcryptCost = 4 // the least there is: passwords of tests are no secrets
	if cfg.InitialCluster = f.cluster; f.cluster == "" {
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", err
	}
	select {
	case <-server.Server.ReadyNotify():
		clients.Host = server.Clients[0].Addr().String()
		return server, clients.String(), nil
	case err = <-server.Err():
	case <-time.After(startTime):
		err = fmt.Errorf("not ready within %s", startTime)
	}
	server.Close()
	return nil, "", err
}

// with runs a command on this etcd.
func with(command []string, endpoint, node string) error {
	fmt.Printf(`etcd is at %[1]s until the agent ends. To add an interface to its VPP, and to see what became of it:
  etcdctl --endpoints %[1]s put /vnf-agent/%[2]s/config/vpp/v2/interfaces/loop1 '{"name": "loop1", "type": "SOFTWARE_LOOPBACK", "enabled": true}'
  etcdctl --endpoints %[1]s get --prefix /vnf-agent/%[2]s/config-status/

`, endpoint, node)
	cmd := exec.Command(command[0], append(command[1:], "--etcd-endpoints", endpoint)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM { // Ctrl-C went to both
				_ = cmd.Process.Signal(s) // it may have ended
			}
		}
	}()
	defer func() { signal.Stop(signals); close(signals) }()
	return cmd.Wait()
}
