package flags

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/plugins/podnet/takeover"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nic"
)

// direct are the flags of the path between nodes.
type direct struct {
	kind, uplink, nic, check string
	within                   time.Duration
}

// directFlags need --cni.
var directFlags = []string{"node-to-node", "node-uplink", "node-nic", "nic-check", "nic-confirm-within"}

// confirmWithin is the default of --nic-confirm-within.
const confirmWithin = 30 * time.Second

// ofVPP begins the name of an interface that VPP has.
const ofVPP = "vpp:"

func (f *direct) addFlags(set *pflag.FlagSet) {
	set.StringVar(&f.kind, "node-to-node", "vxlan", "path between nodes: vxlan, by tunnels over the kernel's network; direct, by --node-uplink, an interface of VPP to a link of all nodes; needs --cni")
	set.StringVar(&f.uplink, "node-uplink", "", "for --node-to-node direct, unless there is --node-nic: a link of the kernel without addresses, which VPP then reads by af_packet; or vpp:NAME, an interface that VPP has with its addresses from its own configuration (DPDK, AF_XDP). Annotation "+
		model.AnnotationUplink+" of the Node has the addresses, as 192.0.2.1/24,2001:db8::1/64; needs --cni")
	set.StringVar(&f.nic, "node-nic", "", "for --node-to-node direct: give this NIC, which has the node's addresses, to VPP. VPP reads it by af_packet and bridges it with the link "+podnet.NICLink+", which gets the addresses and routes. Annotation "+
		model.AnnotationUplink+" has further addresses of the same link, for VPP. The kernel gets the NIC back if the API server does not answer afterwards, while VPP is away, and when the agent is stopped; needs --cni")
	set.StringVar(&f.check, "nic-check", "", "for --node-nic: address and port to which the node must be able to connect, on another machine (default: those of the API server); needs --cni")
	set.DurationVar(&f.within, "nic-confirm-within", confirmWithin, "for --node-nic: how long after the change the connection may take; needs --cni")
}

// settings returns the interface; the zero value: tunnels.
func (f *direct) settings() (d podnet.Direct, err error) {
	switch {
	case f.kind != "vxlan" && f.kind != "direct":
		return d, fmt.Errorf("--node-to-node %q: must be vxlan or direct", f.kind)
	case (f.kind == "direct") != (f.uplink != "" || f.nic != "") || f.uplink != "" && f.nic != "":
		return d, fmt.Errorf("--node-to-node %s, --node-uplink %q, --node-nic %q: direct needs one of both, and nothing else has one", f.kind, f.uplink, f.nic)
	case f.nic == "" && f.check != "":
		return d, errors.New("--nic-check: needs --node-nic")
	case f.nic == "" && f.within != confirmWithin:
		return d, errors.New("--nic-confirm-within: needs --node-nic")
	case f.within <= 0:
		return d, fmt.Errorf("--nic-confirm-within %s: must be above 0", f.within)
	case f.kind != "direct":
		return d, nil
	}
	if f.nic != "" {
		link, err := net.InterfaceByName(f.nic)
		if err != nil {
			return d, fmt.Errorf("--node-nic %s: %w", f.nic, err)
		}
		return podnet.Direct{Link: f.nic, MAC: link.HardwareAddr.String(), NIC: true}, nil
	}
	name, is := strings.CutPrefix(f.uplink, ofVPP)
	if is {
		return podnet.Direct{Interface: name}, nil
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return d, fmt.Errorf("--node-uplink %s: %w", name, err)
	}
	addrs, err := link.Addrs()
	if err != nil {
		return d, fmt.Errorf("--node-uplink %s: %w", name, err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			return d, fmt.Errorf("--node-uplink %s: the link has the address %s: it would no longer work, because VPP gets all packets of the link", name, ip)
		}
	}
	return podnet.Direct{Link: name, MAC: link.HardwareAddr.String()}, nil
}

// nicFile has what a NIC had that was given to VPP.
const nicFile = "nic.json"

// settleNIC gives a NIC back to the kernel that an agent with this --cni-state gave to VPP. The caller calls finish when VPP has nothing of it any more.
func settleNIC(folder string) (finish func() error, err error) {
	return takeover.Settle(filepath.Join(folder, nicFile), &nic.NIC{Link: podnet.NICLink})
}

// takeOver returns what gives the NIC to VPP; nil: nothing does.
func (f *direct) takeOver(folder string, n *podnet.Network, server string, log *slog.Logger) (*takeover.Takeover, error) {
	file := filepath.Join(folder, nicFile)
	cfg := takeover.Config{
		File: file, Mover: &nic.NIC{Name: f.nic, Link: podnet.NICLink}, Within: f.within, Logger: log,
		Away:    func() string { return n.Bridges(true) },
		Unready: func() string { return n.Bridges(false) },
	}
	if f.nic == "" {
		if !takeover.Exists(file) {
			return nil, nil
		}
		cfg.Leave, cfg.Unready = true, func() string {
			if err := n.Status(context.Background()); err != nil {
				return err.Error()
			}
			return ""
		}
		return takeover.New(cfg, time.Now())
	}
	to := f.check
	if to == "" {
		to = server
	}
	if _, _, err := net.SplitHostPort(to); err != nil {
		return nil, fmt.Errorf("--nic-check %q: %w: give an address and a port on another machine", to, err)
	}
	cfg.Check = func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return takeover.New(cfg, time.Now())
}
