package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
)

// Values of --terminating-endpoints.
const (
	keepTerminating   = "keep"
	removeTerminating = "remove"
)

// Values of --source-check.
const (
	sourceStrict      = "strict"
	sourceAnnotations = "annotations"
	sourceOff         = "off"
)

// Values of --unknown-interfaces.
const (
	denyUnknown  = "deny"
	allowUnknown = "allow"
)

// agentFlags are the flags that run, plan and trace have in common.
type agentFlags struct {
	proxyName    string
	loopback     string
	serviceCIDRs []string
	uplink       string
	overlay      string
	host         string
	weight       uint8
	noSNAT       bool
	noExternal   bool
	noPolicies   bool
	sourceCheck  string
	unknown      string
	hostAddrs    []string
	trustNode    bool
	vxlanPort    uint16
	nat          natFlags
	limits       limitFlags
	renderer     string
	terminating  string
	nodePorts    []string
	external     []string
	maglev       bool
}

func (f *agentFlags) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.proxyName, "proxy-name", "", "serve Services with this label service.kubernetes.io/service-proxy-name (default: those without the label)")
	fs.StringVar(&f.loopback, "nat-loopback", "", "IPv4 address that replaces the address of clients where replies must return to this node (default: the highest free one of the node's pod CIDR)")
	fs.StringSliceVar(&f.serviceCIDRs, "service-cidr", nil, "ranges of cluster IPs, in addition to ServiceCIDR objects")
	fs.StringVar(&f.uplink, "uplink", "", "VPP interface that leads out of the node (default: the one with the node's address or the default route)")
	fs.StringVar(&f.overlay, "overlay", "", "VPP interface that leads to the pods of other nodes (default: the one of the route to their pod CIDRs)")
	fs.StringVar(&f.host, "host-interface", "", "VPP interface to the node's own network stack (default: none)")
	fs.StringSliceVar(&f.hostAddrs, "host-address", nil, "addresses that only the node's own processes send from to pods; not the node's other addresses, which nat44 also gives to pods (default: VPP's neighbours on --host-interface)")
	fs.BoolVar(&f.trustNode, "trust-node-addresses", false, "if no --host-address is known, let packets from the node's own addresses reach every pod of the node, as the kubelet's probes must. With nat44 a pod can get such an address, and then reaches pods that policies isolate; policies that allow other nodes' addresses allow pods of these nodes as well")
	fs.Uint8Var(&f.weight, "local-endpoint-weight", 1, "weight of an endpoint on this node; a remote endpoint has 1")
	fs.BoolVar(&f.noSNAT, "no-snat", false, "keep pod addresses in packets that leave the cluster")
	fs.BoolVar(&f.noExternal, "no-external-ips", false, "do not serve spec.externalIPs: otherwise each user who may write a Service may take any address outside the cluster")
	fs.StringSliceVar(&f.external, "external-ip-cidrs", nil, "ranges that spec.externalIPs may be in; addresses of nodes, pods and the API server, and cluster IPs, are refused even there (default: all addresses except the ranges of nodes, pods and cluster IPs)")
	fs.StringSliceVar(&f.nodePorts, "node-port-addresses", nil, "ranges of the node addresses that node ports are served on, or primary: a node's first address of each family (default: all addresses in the Node objects)")
	fs.StringVar(&f.terminating, "terminating-endpoints", removeTerminating, "endpoints that terminate and still serve, while others are ready: remove (they get no new connections, as in Kubernetes; nat44 ends existing ones, cnat keeps them) or keep (they get new connections, and nat44 ends no connection while they serve). If no endpoint is ready they are used in both cases")
	fs.BoolVar(&f.noPolicies, "no-policies", false, "do not enforce policies")
	fs.StringVar(&f.sourceCheck, "source-check", sourceStrict, "addresses a pod may send from: strict (its own), annotations (also those that the pod's annotations contiv-agent.io/source-check and cni.projectcalico.org/allowedSourcePrefixes allow: each user who may create pods may then take any address) or off (any); off also lets packets from outside pass with an address of this node")
	fs.StringVar(&f.unknown, "unknown-interfaces", denyUnknown, "packets on VPP interfaces that may be a pod's (a tap, af_packet or memif without an address, or with a tag that names a pod) until the agent has evaluated the pod: deny (none pass) or allow (all pass). The uplink, the overlay and the host interface are exempt. With --no-policies, or a dataplane driver, the agent attaches no access lists")
	fs.StringVar(&f.renderer, "service-renderer", string(agent.RendererAuto), "renderer of Services: nat44 (IPv4 only), cnat (both families), or auto (nat44 for IPv4, cnat for IPv6). A Service's annotation contiv-agent.io/service-renderer restricts it to one of them")
	fs.BoolVar(&f.maglev, "maglev", false, "cnat chooses endpoints by Maglev's table: few connections move when endpoints change, and all nodes choose the same endpoint (default: a hash over the number of endpoints)")
	fs.Uint16Var(&f.vxlanPort, "vxlan-port", 4789, "UDP port of the overlay, exempt from SNAT")
	f.nat.addFlags(fs)
	f.limits.addFlags(fs)
}

// agentFlagNames returns the names of agentFlags.
func agentFlagNames() (out []string) {
	cmd := &cobra.Command{}
	new(agentFlags).addFlags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { out = append(out, f.Name) })
	return out
}

// socketFlag adds the flag of a command that connects to a running VPP.
func socketFlag(fs *pflag.FlagSet, socket *string) {
	fs.StringVar(socket, "vpp-socket", "/run/vpp/api.sock", "binary-API socket of VPP")
}

// lockFlag adds the flag of a command that programs a VPP.
func lockFlag(fs *pflag.FlagSet, lock *string) {
	fs.StringVar(lock, "vpp-lock", auto, "files (this path, and -services or -policies) that keep a second agent off this VPP; empty: none; auto: --vpp-socket with .owner, beside it")
}

// lockPath returns the path of a VPP's lock.
func lockPath(lock, socket string) string {
	if lock == auto {
		return socket + ".owner"
	}
	return lock
}

// settings returns the values of the agent flags that the command line sets, as text.
func settings(fs *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	for _, name := range agentFlagNames() {
		f := fs.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		out[name] = f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			out[name] = strings.Join(list.GetSlice(), ",")
		}
	}
	return out
}

// apply sets the flags from the settings of another process.
func (f *agentFlags) apply(settings map[string]string) error {
	cmd := &cobra.Command{}
	f.addFlags(cmd)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if err := cmd.Flags().Set(name, settings[name]); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

// config turns the flags into an agent's configuration. The error names all wrong flags.
func (f *agentFlags) config() (agent.Config, error) {
	var cfg agent.Config
	cfg.Services.ProxyName, cfg.Services.NoExternalIPs, cfg.Policies.Off = f.proxyName, f.noExternal, f.noPolicies
	cfg.Override.Uplink, cfg.Override.Overlay, cfg.Override.Host = f.uplink, f.overlay, f.host
	cfg.Services.Renderer.NAT44.LocalEndpointWeight, cfg.Services.Renderer.NAT44.DisableSNAT = f.weight, f.noSNAT
	cfg.Services.Renderer.CNAT.LocalEndpointWeight, cfg.Services.Renderer.CNAT.DisableSNAT, cfg.Services.Renderer.CNAT.Maglev = f.weight, f.noSNAT, f.maglev
	var errs []error
	switch cfg.Services.Renderer.Choice = agent.ServiceRenderer(f.renderer); cfg.Services.Renderer.Choice {
	case agent.RendererAuto, agent.RendererNAT44, agent.RendererCNAT:
	default:
		errs = append(errs, fmt.Errorf("--service-renderer %s: must be auto, nat44 or cnat", f.renderer))
	}
	switch f.terminating {
	case keepTerminating:
		cfg.Services.KeepTerminating = true
	case removeTerminating:
	default:
		errs = append(errs, fmt.Errorf("--terminating-endpoints %s: must be keep or remove", f.terminating))
	}
	switch f.sourceCheck {
	case sourceStrict:
	case sourceAnnotations:
		cfg.Policies.ACL.SourceCheck = acl.SourceAllowed
	case sourceOff:
		cfg.Policies.ACL.SourceCheck = acl.SourceOff
	default:
		errs = append(errs, fmt.Errorf("--source-check %s: must be strict, annotations or off", f.sourceCheck))
	}
	switch f.unknown {
	case denyUnknown:
	case allowUnknown:
		cfg.Policies.AllowUnknown = true
	default:
		errs = append(errs, fmt.Errorf("--unknown-interfaces %s: must be deny or allow", f.unknown))
	}
	cfg.Policies.TrustNodeAddresses = f.trustNode
	var err error
	for _, s := range f.hostAddrs {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			errs = append(errs, fmt.Errorf("--host-address %s: must be an IPv4 or IPv6 address", s))
			continue
		}
		cfg.Override.HostIPs = append(cfg.Override.HostIPs, a)
	}
	slices.SortFunc(cfg.Override.HostIPs, netip.Addr.Compare)
	cfg.Override.HostIPs = slices.Compact(cfg.Override.HostIPs)
	if cfg.Services.NodePorts, err = service.ParseNodePortAddresses(f.nodePorts); err != nil {
		errs = append(errs, fmt.Errorf("--node-port-addresses: %w", err))
	}
	cfg.Services.Renderer.NAT44.VXLANPort = f.vxlanPort
	errs = append(errs, f.nat.apply(&cfg), f.limits.apply(&cfg))
	if f.loopback != "" {
		if cfg.Services.Loopback, err = netip.ParseAddr(f.loopback); err != nil {
			errs = append(errs, fmt.Errorf("--nat-loopback: %w", err))
		}
	}
	cfg.Services.ServiceCIDRs, err = prefixes("--service-cidr", f.serviceCIDRs)
	errs = append(errs, err)
	cfg.Services.ExternalIPCIDRs, err = prefixes("--external-ip-cidrs", f.external)
	errs = append(errs, err)
	if f.noExternal && len(f.external) > 0 {
		errs = append(errs, errors.New("--external-ip-cidrs: has no effect with --no-external-ips; give one of them"))
	}
	return cfg, usage(errors.Join(errs...))
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

// logFlags choose how the program logs.
type logFlags struct {
	format, level string
	current       slog.LevelVar // level of the logger that was made
}

func (f *logFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&f.level, "log-level", "info", "debug, info, warn or error; the log-level command changes it later")
}

func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	var errs []error
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		errs = append(errs, fmt.Errorf("--log-level %s: must be debug, info, warn or error", f.level))
	}
	f.current.Set(level)
	opts := &slog.HandlerOptions{Level: &f.current}
	log := slog.New(slog.NewTextHandler(w, opts))
	switch f.format {
	case "text":
	case "json":
		log = slog.New(slog.NewJSONHandler(w, opts))
	default:
		errs = append(errs, fmt.Errorf("--log-format %s: must be text or json", f.format))
	}
	return log, usage(errors.Join(errs...))
}

// nodeName returns the node's name: the flag, or $NODE_NAME, which a DaemonSet sets, or the host's name.
func nodeName(flag string) string {
	if flag != "" {
		return flag
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}

// auto stands for a value that the program chooses.
const auto = "auto"

// envStatusSocket is the environment variable for the status socket, for run and its clients. A flag wins.
const envStatusSocket = "CONTIV_STATUS_SOCKET"

func statusSocket(flag string) string {
	if flag != auto {
		return flag
	}
	if path := os.Getenv(envStatusSocket); path != "" {
		return path
	}
	return runPath("agent.sock")
}

// journalPath returns the path of the agent's journal. The default lives as long as VPP can.
func journalPath(flag string, embedded bool) string {
	switch {
	case flag != auto:
		return flag
	case embedded || os.Geteuid() != 0:
		return ""
	}
	return "/run/contiv-agent/journal"
}

// runPath returns the path of a socket in a folder of the current user. In a folder that users share, another user could
// create the name first and answer for the agent. "": the user has no such folder, and a flag must name a path.
func runPath(name string) string {
	if os.Geteuid() == 0 {
		return filepath.Join("/run/contiv-agent", name)
	}
	return userPath(name)
}

// userPath is runPath for users other than root.
func userPath(name string) string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "contiv-agent", name)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "contiv-agent", name)
}
