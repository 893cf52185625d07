package flags

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/plugins/service"
)

// services are the flags of config.Services, without renderers.
type services struct {
	proxyName    string
	loopback     string
	serviceCIDRs []string
	noExternal   bool
	external     []string
	nodePorts    []string
	terminating  string
}

// Values of --terminating-endpoints.
const (
	keepTerminating   = "keep"
	removeTerminating = "remove"
)

func (f *services) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.proxyName, "proxy-name", "", "serve Services with this label service.kubernetes.io/service-proxy-name (default: those without the label)")
	fs.StringVar(&f.loopback, "nat-loopback", "", "IPv4 address that replaces the address of clients where replies must return to this node (default: the highest free one of the node's pod CIDR)")
	fs.StringSliceVar(&f.serviceCIDRs, "service-cidr", nil, "ranges of cluster IPs, in addition to ServiceCIDR objects")
	fs.BoolVar(&f.noExternal, "no-external-ips", false, "do not serve spec.externalIPs: otherwise each user who may write a Service may take any address outside the cluster")
	fs.StringSliceVar(&f.external, "external-ip-cidrs", nil, "ranges that spec.externalIPs may be in; addresses of nodes, pods and the API server, and cluster IPs, are refused even there (default: all addresses except the ranges of nodes, pods and cluster IPs)")
	fs.StringSliceVar(&f.nodePorts, "node-port-addresses", nil, "ranges of the node addresses that node ports are served on, or primary: a node's first address of each family (default: all addresses in the Node objects)")
	fs.StringVar(&f.terminating, "terminating-endpoints", removeTerminating, "endpoints that terminate and still serve, while others are ready: remove (they get no new connections, as in Kubernetes) or keep (they get new connections). Existing TCP connections continue in both cases. If no endpoint is ready they are used in both cases")
}

// applyTo writes the flags into the configuration. The error names all wrong flags.
func (f *services) applyTo(cfg *config.Services) error {
	cfg.ProxyName, cfg.NoExternalIPs = f.proxyName, f.noExternal
	var errs []error
	switch f.terminating {
	case keepTerminating:
		cfg.KeepTerminating = true
	case removeTerminating:
	default:
		errs = append(errs, fmt.Errorf("--terminating-endpoints %s: must be keep or remove", f.terminating))
	}
	var err error
	if cfg.NodePorts, err = service.ParseNodePortAddresses(f.nodePorts); err != nil {
		errs = append(errs, fmt.Errorf("--node-port-addresses: %w", err))
	}
	if f.loopback != "" {
		if cfg.Loopback, err = netip.ParseAddr(f.loopback); err != nil {
			errs = append(errs, fmt.Errorf("--nat-loopback: %w", err))
		}
	}
	cfg.ServiceCIDRs, err = prefixes("--service-cidr", f.serviceCIDRs)
	errs = append(errs, err)
	cfg.ExternalIPCIDRs, err = prefixes("--external-ip-cidrs", f.external)
	errs = append(errs, err)
	if f.noExternal && len(f.external) > 0 {
		errs = append(errs, errors.New("--external-ip-cidrs: has no effect with --no-external-ips; give one of them"))
	}
	return errors.Join(errs...)
}

// prefixes reads ranges of addresses. The error names the flag and each text that is not a range.
func prefixes(flag string, list []string) (out []netip.Prefix, err error) {
	var errs []error
	for _, s := range list {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
			continue
		}
		out = append(out, prefix.Masked())
	}
	return out, errors.Join(errs...)
}
