package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/owner"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/renderer/cnat"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// Source delivers Kubernetes objects; source/manifest and source/kube implement it.
type Source interface {
	// Run emits updates and sync states until ctx ends.
	Run(ctx context.Context, emit func(event.Event)) error
}

// DefaultRecheck is Config.Recheck of the commands. The agent restores a mapping that another program removes within that
// time, and a detached access list within a fifth of it. docs/operations.md has the cost of a round.
const DefaultRecheck = 30 * time.Second

// Config is the configuration of one agent.
type Config struct {
	NodeName string // name of this node's Node object; must not be empty

	// Socket is VPP's binary-API socket; Dial replaces it for tests and simulations.
	Socket string
	Dial   func(ctx context.Context) (net.Conn, error)

	// Lock is the path of the files that keep a second agent off this VPP; the agent appends the part of VPP that it owns.
	// "": none. Agents that own different parts can run at the same time. A Stepper takes no lock, because it may only read.
	Lock string

	// MaxPause bounds the reconnect pause after a VPP that accepted a connection and died; the pause doubles each time; 0: 5
	// s.
	MaxPause time.Duration

	// Sources by name. The agent programs nothing before all have been in sync once.
	Sources map[string]Source

	// External are the sources of other programs' configuration. The agent programs nothing before each has sent its desired
	// state once. Their names must differ from each other and from those of Sources. The agent serves the metrics of those
	// that are prometheus.Collectors. With any of them, and without Dial, the agent also configures the host's interfaces,
	// routes and neighbours in the kernel.
	External []controller.ExternalConfigSource

	// ServiceRenderer selects the renderer of Services; "": auto. NAT44 and CNAT are the renderers' settings; the families
	// of CNAT follow from ServiceRenderer.
	ServiceRenderer ServiceRenderer
	NAT44           nat44.Config
	CNAT            cnat.Config

	ProxyName     string         // serve Services with this label service.kubernetes.io/service-proxy-name; "": those without
	Loopback      netip.Addr     // NAT loopback; zero: a free address of the node's pod CIDR
	ServiceCIDRs  []netip.Prefix // in addition to the ServiceCIDR objects
	NoExternalIPs bool           // do not serve spec.externalIPs: otherwise each user who may write a Service may take any address
	// ExternalIPCIDRs are the ranges that spec.externalIPs may be in; none: all addresses except the ranges of nodes, pods
	// and cluster IPs.
	ExternalIPCIDRs []netip.Prefix
	APIServers      []netip.Addr // addresses of the API server that no Service may take, in addition to endpoints of default/kubernetes
	// NodePorts selects the addresses of nodes that serve node ports; zero: all.
	NodePorts service.NodePortAddresses
	// KeepTerminating uses endpoints that terminate and still serve beside ready ones; false: only if none is ready, as in
	// Kubernetes.
	KeepTerminating bool
	// HealthChecks configures the health checks of load balancers (spec.healthCheckNodePort); nil: none. The agent sets
	// Healthy and Logger. A Stepper does not listen.
	HealthChecks *health.Config
	Override     event.Located // interfaces given by name, which the agent does not look for

	// Stall is the longest time for which the agent stops VPP's forwarding, where it can choose: the agent sends longer work in portions,
	// with pauses. 0: 3 ms. A Stepper makes no pauses, and divides nothing unless Stall is set.
	Stall time.Duration
	// Limits bound what Services and policies may require: per object, per namespace, and in total. Zero: no limits.
	Limits budget.Limits

	NoServices bool // do not serve Services
	NoPolicies bool // do not enforce policies
	// SourceCheck selects the addresses that pods may send from; zero: only their own. It is part of policy enforcement:
	// with NoPolicies, or a Driver, the agent does not check.
	SourceCheck acl.SourceCheck
	// TrustNodeAddresses admits packets from the node's own addresses to every pod, although nat44 also gives these
	// addresses to pods. It is needed if the node's processes have no separate address (Override.HostIPs, or VPP's
	// neighbours on Host).
	TrustNodeAddresses bool
	// Felix means that policies and endpoints are the messages of a Felix whose dataplane driver this agent is; nil: they
	// are objects.
	Felix *attachment.Felix
	// Driver is an external dataplane driver that enforces policies instead of renderer/acl; nil: renderer/acl does. The
	// agent runs the driver, and leaves the access lists in VPP to it.
	Driver *felix.Supervisor
	// AllowUnknown lets all packets pass interfaces that may be a pod's until the agent has evaluated the pod; false: they
	// are denied. With NoPolicies or Driver the agent attaches no access lists, and denies nothing.
	AllowUnknown bool
	// PostDNAT means that services are translated before the access lists of an interface's input, as cnat does. Nat44
	// translates after them, so egress must be evaluated where packets leave.
	PostDNAT bool
	// RuleCounters reads VPP's counters of rules; nil: the agent does not switch counting on. It never switches it off.
	RuleCounters counters.RuleCounters

	// Renderers are additional renderers, which get the same data as the built-in ones.
	Renderers []func(renderer.Sink) renderer.ServiceRendererAPI

	Recheck time.Duration // period in which all objects of the agent in VPP are compared with the desired state once; 0: only after a reconnect
	Journal string        // file that records the agent's objects in VPP; "": memory only

	Listen       string // TCP address of /metrics, /healthz, /readyz, /livez; "": none
	Profiling    bool   // also serve /debug/pprof on Listen
	Healthz      string // TCP address of /healthz and /livez as kube-proxy serves them (":10256"), retried until it is free; "": none
	StatusSocket string // unix socket of the status command; "": none
	// SessionsEvery is the period in which the agent counts VPP's NAT44 sessions, and frees some if the table is nearly
	// full; 0: never. The period is longer if VPP would spend more than 0.5 % of its time on counting. The agent reads the
	// drops of source checks in the same period.
	SessionsEvery time.Duration
	// SessionCounter counts them; if nil or failing, the agent dumps them from VPP, which then stops forwarding.
	SessionCounter nattable.SessionCounter
	// PodSessionShare is the part of the table, in percent, that a pod of this node keeps while the table is nearly full and
	// no session has expired: the agent frees its longest idle sessions above that. 0: nattable.DefaultPodShare; 100: none.
	PodSessionShare uint8

	// Alone means that the process runs only this agent. Then garbage collection runs less often until the first sync is
	// done, unless GOGC is set.
	Alone bool

	// Settings are the flags that differ from their defaults, by name; the status shows them.
	Settings map[string]string

	// Reporter reports the state of objects and of the agent to Kubernetes; nil: no reports. A Stepper does not report.
	Reporter Reporter

	Now      func() time.Time     // the clock for retries; nil: time.Now
	Logger   *slog.Logger         // nil: silent
	LogLevel *slog.LevelVar       // of Logger; StatusSocket can change it; nil: fixed
	Registry *prometheus.Registry // nil: a new one
	// OnCommitted is called for every transaction that ended; nil: not called.
	OnCommitted func(*event.Committed)
}

// deniesUnknown reports whether the agent closes unknown interfaces, which may be a pod's, until it has evaluated them.
func (c *Config) deniesUnknown() bool { return !c.AllowUnknown && !c.NoPolicies && c.Driver == nil }

// share returns the part of VPP that this agent owns.
func (c *Config) share() owner.Share {
	switch {
	case c.Driver != nil:
		return owner.Services
	case c.Felix != nil && c.NoServices:
		return owner.Policies
	}
	return owner.All
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("node name: must not be empty"))
	}
	if c.Socket == "" && c.Dial == nil {
		errs = append(errs, errors.New("vpp socket: must not be empty"))
	}
	if c.Loopback.IsValid() && !c.Loopback.Is4() {
		errs = append(errs, fmt.Errorf("NAT loopback %s: must be an IPv4 address", c.Loopback))
	}
	if c.MaxPause < 0 {
		errs = append(errs, fmt.Errorf("pause %s between attempts to reach VPP: must not be negative", c.MaxPause))
	}
	if c.Recheck < 0 {
		errs = append(errs, fmt.Errorf("recheck %s: must not be negative", c.Recheck))
	}
	if c.Felix != nil && c.NoPolicies {
		errs = append(errs, errors.New("policies of a Felix: NoPolicies must not be set"))
	}
	if c.SessionsEvery < 0 {
		errs = append(errs, fmt.Errorf("count sessions every %s: must not be negative", c.SessionsEvery))
	}
	if c.PodSessionShare > 100 {
		errs = append(errs, fmt.Errorf("share of NAT sessions of a pod, %d %%: must be at most 100", c.PodSessionShare))
	}
	if c.Driver != nil && (c.NoPolicies || c.Felix != nil) {
		errs = append(errs, errors.New("driver: needs enforced policies from objects"))
	}
	if _, port, err := net.SplitHostPort(c.Healthz); c.Healthz != "" && (err != nil || port == "") {
		errs = append(errs, fmt.Errorf("healthz bind address %q: must be host:port", c.Healthz))
	}
	errs = append(errs, c.validateExternal(), c.ServiceRenderer.Validate())
	return errors.Join(append(errs, c.NAT44.Validate())...)
}

func (p *parts) now() time.Time {
	if p.cfg.Now != nil {
		return p.cfg.Now()
	}
	return time.Now()
}
