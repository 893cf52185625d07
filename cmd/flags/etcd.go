package flags

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
)

// Etcd configure the source that reads from etcd.
type Etcd struct {
	endpoints     []string
	prefix, label string
	ca, cert, key string
	serverName    string
	user          string
	passwordFile  string
	wait          time.Duration
	noStatus      bool
	statusTTL     time.Duration
}

// AddFlags adds the flags to a command.
func (f *Etcd) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.endpoints, "etcd-endpoints", nil, "read configuration of other programs from this etcd (host:port or URLs of its members)")
	fs.StringVar(&f.prefix, "etcd-prefix", etcd.DefaultPrefix, "prefix of all agents' keys in etcd")
	fs.StringVar(&f.label, "etcd-node-label", "", "label of this node in its keys: /vnf-agent/LABEL/config/… (default: the name of the node)")
	fs.StringVar(&f.ca, "etcd-ca", "", "file with the authorities that sign the certificates of etcd's members (default: the system's)")
	fs.StringVar(&f.cert, "etcd-cert", "", "file with the agent's certificate for etcd; needs --etcd-key")
	fs.StringVar(&f.key, "etcd-key", "", "file with its private key")
	fs.StringVar(&f.serverName, "etcd-server-name", "", "name in the certificates of etcd's members (default: the host of the endpoint)")
	fs.StringVar(&f.user, "etcd-user", "", "log in to etcd as this user; needs --etcd-password-file")
	fs.StringVar(&f.passwordFile, "etcd-password-file", "", "file with the password, in its first line")
	fs.DurationVar(&f.wait, "etcd-wait", 30*time.Second, "how long the first sync waits for etcd. Then the agent continues without it, and removes etcd's values from VPP until etcd answers; 0: no limit")
	fs.BoolVar(&f.noStatus, "etcd-no-status", false, "do not write the result of each key to /vnf-agent/LABEL/config-status/…")
	fs.DurationVar(&f.statusTTL, "etcd-status-ttl", 30*time.Second, "how long these results stay after the agent has died")
}

// Source returns the etcd source; none without --etcd-endpoints.
func (f *Etcd) Source(cmd *cobra.Command, node string, once bool, log *slog.Logger) ([]controller.ExternalConfigSource, error) {
	if len(f.endpoints) == 0 {
		for _, name := range []string{"prefix", "node-label", "ca", "cert", "key", "server-name", "user", "password-file", "wait", "no-status", "status-ttl"} {
			if cmd.Flags().Changed("etcd-" + name) {
				return nil, exit.Usage(fmt.Errorf("--etcd-%s needs --etcd-endpoints", name))
			}
		}
		return nil, nil
	}
	switch {
	case (f.cert == "") != (f.key == ""):
		return nil, exit.Usage(errors.New("--etcd-cert and --etcd-key need each other"))
	case (f.user == "") != (f.passwordFile == ""):
		return nil, exit.Usage(errors.New("--etcd-user and --etcd-password-file need each other"))
	}
	cfg := etcd.Config{
		Endpoints: f.endpoints, Prefix: f.prefix, Label: f.label, Username: f.user, StartWait: f.wait,
		NoStatus: f.noStatus || once, StatusTTL: f.statusTTL, Logger: log,
	}
	if cfg.Label == "" {
		cfg.Label = node
	}
	if f.user != "" {
		raw, err := os.ReadFile(f.passwordFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-password-file: %w", err)
		}
		line, _, _ := strings.Cut(string(raw), "\n")
		if cfg.Password = strings.TrimSuffix(line, "\r"); cfg.Password == "" {
			return nil, fmt.Errorf("--etcd-password-file: %s: the first line is empty", f.passwordFile)
		}
	}
	if f.ca != "" || f.cert != "" || f.serverName != "" {
		var err error
		if cfg.TLS, err = etcd.LoadTLS(f.ca, f.cert, f.key, f.serverName); err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
	}
	src, err := etcd.New(cfg)
	if err != nil {
		return nil, exit.Usage(err)
	}
	return []controller.ExternalConfigSource{src}, nil
}
