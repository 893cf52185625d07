package scenario

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/trace"
)

// settings are the agent settings that a script may change.
type settings struct {
	weight     uint8
	proxyName  string
	noSNAT     bool
	renderer   agent.ServiceRenderer
	maglev     bool
	keep       bool
	noPolicies bool
	nodePorts  service.NodePortAddresses
	external   []netip.Prefix
	removals   lossguard.Limits
	quarantine bool
}

func (o settings) config(journals string) trace.Config {
	cfg := trace.Config{Seed: 1}
	cfg.Agent.VPPAgent.Journal = journals
	cfg.Agent.Services.Renderer.NAT44.LocalEndpointWeight = o.weight
	cfg.Agent.Services.Renderer.NAT44.DisableSNAT = o.noSNAT
	cfg.Agent.Services.Renderer.Choice = o.renderer
	cfg.Agent.Services.Renderer.CNAT.LocalEndpointWeight, cfg.Agent.Services.Renderer.CNAT.DisableSNAT, cfg.Agent.Services.Renderer.CNAT.Maglev = o.weight, o.noSNAT, o.maglev
	cfg.Agent.Services.ProxyName, cfg.Agent.Policies.Off = o.proxyName, o.noPolicies
	cfg.Agent.Services.KeepTerminating, cfg.Agent.Services.NodePorts = o.keep, o.nodePorts
	cfg.Agent.Services.ExternalIPCIDRs = o.external
	return cfg
}

func (s *story) cmdAgent(_ *testscript.TestScript, args []string) error {
	if err := s.settings.parse(args); err != nil {
		return err
	}
	s.newProtections()
	if s.cluster != nil && len(s.cluster.Nodes()) > 0 {
		s.cluster.Reconfigure(func(cfg *agent.Config) {
			journal := cfg.VPPAgent.Journal
			*cfg = s.config(journal).Agent
		})
		return nil
	}
	s.cluster = nil
	return nil
}

// parse reads arguments KEY=VALUE.
func (o *settings) parse(args []string) error {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "weight":
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil {
				return err
			}
			o.weight = uint8(n)
		case "proxy-name":
			o.proxyName = value
		case "snat":
			o.noSNAT = value == "off"
		case "renderer":
			o.renderer = agent.ServiceRenderer(value)
		case "terminating":
			o.keep = value == "keep"
		case "node-ports":
			var err error
			if o.nodePorts, err = service.ParseNodePortAddresses(strings.Split(value, ",")); err != nil {
				return err
			}
		case "external-ip-cidrs":
			o.external = nil
			for _, text := range strings.Split(value, ",") {
				cidr, err := netip.ParsePrefix(text)
				if err != nil {
					return err
				}
				o.external = append(o.external, cidr)
			}
		case "policies":
			o.noPolicies = value == "off"
		case "hold-removals":
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil {
				return err
			}
			o.removals = lossguard.Limits{Share: uint8(n), Least: 2, For: lossguard.DefaultFor}
		case "quarantine":
			o.quarantine = value == "on"
		case "maglev":
			o.maglev = value == "on"
		default:
			return fmt.Errorf("unknown setting %q", key)
		}
	}
	return nil
}
