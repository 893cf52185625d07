package flags

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

// Typha select the fan-out servers to follow. Every flag's name begins with a prefix: "typha".
type Typha struct {
	prefix  string
	addrs   []string
	service string
	files   typha.TLS
	plain   bool
	open    bool
}

// AddFlags adds the flags to a command. Their names begin with the prefix.
func (f *Typha) AddFlags(cmd *cobra.Command, prefix string) {
	f.prefix = "--" + prefix
	fs := cmd.Flags()
	fs.StringSliceVar(&f.addrs, prefix+"-addr", nil, fmt.Sprintf("fan-out servers to follow (contiv-agent fanout, or Calico's Typha), as host[:port]; default port: %d", wire.Port))
	fs.StringVar(&f.service, prefix+"-service", "", "Service of the fan-out servers, as NAMESPACE/NAME, or a DNS name. With --kubeconfig or --in-cluster: its endpoints from the API server, those of this node first; else the addresses of its name in DNS")
	fs.StringVar(&f.files.CA, prefix+"-ca", "", "file with the authorities that sign the fan-out servers' certificates; with it connections are TLS")
	fs.StringVar(&f.files.Cert, prefix+"-cert", "", "file with the client certificate for fan-out servers")
	fs.StringVar(&f.files.Key, prefix+"-key", "", "file with the key of that certificate")
	fs.StringVar(&f.files.Server.CN, prefix+"-cn", "", "common name that a fan-out server's certificate must have")
	fs.StringVar(&f.files.Server.URI, prefix+"-uri-san", "", "URI among the alternative names that a fan-out server's certificate must have; with both, either is enough")
	fs.BoolVar(&f.open, prefix+"-insecure", false, "follow fan-out servers that are not on loopback without TLS: everyone on the path can then write all policies and Services")
	fs.BoolVar(&f.plain, prefix+"-plain", false, "no compression")
}

// Given reports whether servers are named.
func (f *Typha) Given() bool { return len(f.addrs) > 0 || f.service != "" }

// Needless returns a flag without effect; "": none.
func (f *Typha) Needless() string {
	switch {
	case f.Given():
	case f.files != typha.TLS{}:
		return f.prefix + "-ca, -cert, -key, -cn and -uri-san"
	case f.plain:
		return f.prefix + "-plain"
	case f.open:
		return f.prefix + "-insecure"
	}
	return ""
}

// Plaintext adds the flags that correct an error about plaintext.
func Plaintext(err error, tls, insecure string) error {
	if errors.Is(err, typha.ErrPlaintext) || errors.Is(err, fanout.ErrPlaintext) {
		return fmt.Errorf("%w: give %s, or %s", err, tls, insecure)
	}
	return err
}

// Config returns the client's configuration. With an API server, the client finds the Service's endpoints there.
func (f *Typha) Config(node, version string, api *kube.Config, log *slog.Logger) (typha.Config, error) {
	cfg := typha.Config{
		Addrs: f.addrs, Service: f.service, TLS: f.files, Insecure: f.open, Plain: f.plain, Hostname: node, Version: version, Logger: log,
	}
	if namespace, name, ok := strings.Cut(f.service, "/"); ok && api != nil {
		if len(f.addrs) > 0 {
			return cfg, exit.Usage(errors.New(f.prefix + "-addr and " + f.prefix + "-service: give one of them"))
		}
		cfg.Discover = func(ctx context.Context) ([]string, error) {
			return api.Endpoints(ctx, namespace, name, node, wire.Port)
		}
	}
	if err := cfg.Validate(); err != nil {
		return cfg, exit.Usage(Plaintext(err, f.prefix+"-ca, "+f.prefix+"-cert and "+f.prefix+"-key, and "+f.prefix+"-cn or "+f.prefix+"-uri-san", f.prefix+"-insecure"))
	}
	return cfg, nil
}
