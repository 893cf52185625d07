package flags

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
)

// Pods are the flags of the node's network.
type Pods struct {
	on    bool
	state string
	mtu   int
}

// AddFlags adds the flags.
func (f *Pods) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&f.on, "cni", false, "connect pods: serve the CNI plugin contiv-cni at --status-socket, and make interfaces, addresses, routes, and VXLAN tunnels between nodes, in VPP and in the kernel. The node's NIC stays the kernel's. VPP must run in the agent's network namespace, with the plugins af_packet and vxlan")
	fs.StringVar(&f.state, "cni-state", "/var/lib/contiv-agent", "folder with the Bolt files of attachments and addresses; needs --cni")
	fs.IntVar(&f.mtu, "link-mtu", 0, "MTU of the links between nodes; pods get 50 bytes less, or 70 if tunnels cross IPv6; needs --cni (default: 1500)")
}

// Check returns the errors of the flags.
func (f *Pods) Check(node string, embedded bool) error {
	switch {
	case !f.on && f.mtu != 0:
		return exit.Usage(errors.New("--link-mtu: needs --cni"))
	case !f.on:
		return nil
	case embedded:
		return exit.Usage(errors.New("--cni: the embedded VPP carries no packets of pods; give --vpp-socket"))
	}
	s := podnet.Settings{NodeName: node, MTU: f.mtu}
	if err := s.Validate(); err != nil {
		return exit.Usage(fmt.Errorf("--link-mtu: %w", err))
	}
	return nil
}

// Open opens the files and completes the configuration. Without --cni it changes nothing.
func (f *Pods) Open(cfg *agent.Config, now time.Time, log *slog.Logger) error {
	if !f.on {
		return nil
	}
	pool, err := ipam.Open(now, ipam.Config{File: filepath.Join(f.state, "addresses.db")})
	if err != nil {
		return err
	}
	network, err := podnet.New(podnet.Config{
		Settings: podnet.Settings{NodeName: cfg.NodeName, MTU: f.mtu, ServiceCIDRs: cfg.Services.ServiceCIDRs},
		File:     filepath.Join(f.state, "attachments.db"), Pool: pool, Closed: cfg.DeniesUnknown(), Logger: log,
	})
	if err != nil {
		return errors.Join(err, pool.Close())
	}
	cfg.Pods = &config.Pods{Network: network, Spool: protocol.DefaultSpool}
	return nil
}
