package flags

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/renderer/builtin"
)

// renderers are the flags of the renderers of Services.
type renderers struct {
	choice    string
	weight    uint8
	noSNAT    bool
	maglev    bool
	vxlanPort uint16
	byHost    bool // no flag: see Agent.OutByHost
}

func (f *renderers) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.choice, "service-renderer", string(builtin.Auto), "renderer of Services: nat44 (IPv4 only), cnat (both families), or auto (nat44 for IPv4, cnat for IPv6). A Service's annotation contiv-agent.io/service-renderer restricts it to one of them")
	fs.Uint8Var(&f.weight, "local-endpoint-weight", 1, "weight of an endpoint on this node; a remote endpoint has 1 (nat44: a higher one holds for new endpoints)")
	fs.BoolVar(&f.noSNAT, "no-snat", false, "keep pod addresses in packets that leave the cluster")
	fs.BoolVar(&f.maglev, "maglev", false, "cnat chooses endpoints by Maglev's table: few connections move when endpoints change, and all nodes choose the same endpoint (default: a hash over the number of endpoints)")
	fs.Uint16Var(&f.vxlanPort, "vxlan-port", 4789, "UDP port of the overlay, exempt from SNAT")
}

// applyTo writes the flags into the configuration.
func (f *renderers) applyTo(cfg *builtin.Config) error {
	cfg.NAT44.LocalEndpointWeight, cfg.NAT44.DisableSNAT, cfg.NAT44.VXLANPort = f.weight, f.noSNAT || f.byHost, f.vxlanPort
	cfg.CNAT.LocalEndpointWeight, cfg.CNAT.DisableSNAT, cfg.CNAT.Maglev = f.weight, f.noSNAT, f.maglev
	switch cfg.Choice = builtin.Choice(f.choice); cfg.Choice {
	case builtin.Auto, builtin.NAT44, builtin.CNAT:
		return nil
	}
	return fmt.Errorf("--service-renderer %s: must be auto, nat44 or cnat", f.choice)
}
