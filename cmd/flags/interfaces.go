package flags

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/event"
)

// interfaces are the flags that name VPP's interfaces, and the addresses behind the host's.
type interfaces struct {
	uplink, overlay, host string
	hostAddrs             []string
}

func (f *interfaces) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.uplink, "uplink", "", "VPP interface that leads out of the node (default: the one with the node's address or the default route)")
	fs.StringVar(&f.overlay, "overlay", "", "VPP interface that leads to the pods of other nodes (default: the one of the route to their pod CIDRs)")
	fs.StringVar(&f.host, "host-interface", "", "VPP interface to the node's own network stack (default: none)")
	fs.StringSliceVar(&f.hostAddrs, "host-address", nil, "addresses that only the node's own processes send from to pods; not the node's other addresses, which nat44 also gives to pods (default: VPP's neighbours on --host-interface)")
}

// applyTo writes the flags into the configuration. The error names all wrong addresses.
func (f *interfaces) applyTo(cfg *event.Located) error {
	cfg.Uplink, cfg.Overlay, cfg.Host = f.uplink, f.overlay, f.host
	var errs []error
	for _, s := range f.hostAddrs {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			errs = append(errs, fmt.Errorf("--host-address %s: must be an IPv4 or IPv6 address", s))
			continue
		}
		cfg.HostIPs = append(cfg.HostIPs, a)
	}
	slices.SortFunc(cfg.HostIPs, netip.Addr.Compare)
	cfg.HostIPs = slices.Compact(cfg.HostIPs)
	return errors.Join(errs...)
}
