package flags

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// Served are the flags of the agent that decide what Services mean on its node, for commands that compare a VPP with Services.
type Served struct {
	services  services
	renderers renderers
	nat       NAT
	api       []string
}

// servedNames are the names of these flags, as the agent has them.
func servedNames() []string {
	return []string{
		"external-ip-cidrs", "local-endpoint-weight", "nat-timeout-icmp", "nat-timeout-tcp-established", "nat-timeout-tcp-transitory", "nat-timeout-udp",
		"no-external-ips", "no-snat", "node-port-addresses", "proxy-name", "service-cidr", "service-renderer", "terminating-endpoints", "vxlan-port",
	}
}

// Names are the names of all flags of AddFlags.
func (f *Served) Names() []string { return append(servedNames(), "api-server-address") }

// AddFlags adds the flags to a command's.
func (f *Served) AddFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.services.addFlags(all)
	f.renderers.addFlags(all)
	f.nat.addFlags(all)
	for _, name := range servedNames() {
		fs.AddFlag(all.Lookup(name))
	}
	fs.StringSliceVar(&f.api, "api-server-address", nil, "addresses of the API server, which no Service may have, in addition to the endpoints of Service default/kubernetes")
}

// Config is what the flags mean. The error names all wrong flags.
func (f *Served) Config() (out serving.Config, err error) {
	var whole config.Config
	cfg := &whole.Services
	err = errors.Join(f.services.applyTo(cfg), f.renderers.applyTo(&cfg.Renderer), f.nat.applyTo(&whole))
	nat := &cfg.Renderer.NAT44
	out = serving.Config{
		Renderer: string(cfg.Renderer.Choice), ProxyName: cfg.ProxyName, KeepTerminating: cfg.KeepTerminating, LocalWeight: int(f.renderers.weight),
		NoExternalIPs: cfg.NoExternalIPs, ExternalIPCIDRs: cfg.ExternalIPCIDRs, NodePorts: cfg.NodePorts.CIDRs, NodePortsPrimary: cfg.NodePorts.Primary,
		ServiceCIDRs: slices.Clone(cfg.ServiceCIDRs), NoSNAT: nat.DisableSNAT, VXLANPort: nat.VXLANPort,
		Timeouts: serving.Timeouts{UDP: nat.TimeoutUDP, TCPEstablished: nat.TimeoutTCPEstablished, TCPTransitory: nat.TimeoutTCPTransitory, ICMP: nat.TimeoutICMP},
	}
	for _, text := range f.api {
		a, wrong := netip.ParseAddr(text)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("--api-server-address %s: must be an IPv4 or IPv6 address", text))
		}
		out.APIServers = append(out.APIServers, a)
	}
	return out, err
}
