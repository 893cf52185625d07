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

// DefaultRecheck is Config.Recheck of the commands: a mapping that another program removes is back within that time, an access list that
// it detaches within a fifth of it. What a round costs is in docs/operations.md.
const DefaultRecheck = 30 * time.Second

// Config says what one agent is made of.
type Config struct {
	NodeName string // this node's name among the Nodes; must not be empty

	// Socket is VPP's binary-API socket; Dial replaces it for tests and simulations.
	Socket string
	Dial   func(ctx context.Context) (net.Conn, error)

	// Lock is the path of the files that keep a second agent off this VPP: to it, the part of VPP that this agent owns is added. "":
	// none. Agents that own different parts run beside each other. A Stepper, which may only read, takes none.
	Lock string

	// MaxPause bounds the pause after a VPP that accepted a connection and died, which doubles; 0: 5 s.
	MaxPause time.Duration

	// Sources by name. All of them must be in sync once before anything is programmed.
	Sources map[string]Source

	// External are the ways in for configuration of other programs. Each has to say once what it wants before anything is programmed;
	// their names differ from each other's and from those of Sources. One that is a prometheus.Collector has its figures served.
	// If there are any, and Dial is nil, what they want of the host's own interfaces, routes and neighbours is put into its kernel.
	External []controller.ExternalConfigSource

	// ServiceRenderer says what serves Services; "": auto. NAT44 and CNAT are their settings; the families of CNAT follow from it.
	ServiceRenderer ServiceRenderer
	NAT44           nat44.Config
	CNAT            cnat.Config

	ProxyName     string         // serve Services with this label service.kubernetes.io/service-proxy-name; "": those without
	Loopback      netip.Addr     // NAT loopback; zero: a free address of the node's pod CIDR
	ServiceCIDRs  []netip.Prefix // in addition to the ServiceCIDR objects
	NoExternalIPs bool           // leave spec.externalIPs unserved: whoever may write a Service may otherwise take any address
	// ExternalIPCIDRs are the ranges that spec.externalIPs may be in; none: everywhere but in the ranges of nodes, pods and cluster IPs.
	ExternalIPCIDRs []netip.Prefix
	APIServers      []netip.Addr // addresses of the API server that no Service may take, in addition to endpoints of default/kubernetes
	// NodePorts says which addresses of nodes have node ports; zero: all.
	NodePorts service.NodePortAddresses
	// KeepTerminating uses endpoints that terminate and still serve beside ready ones; false: as Kubernetes, where none is ready.
	KeepTerminating bool
	// HealthChecks says where load balancers are told of a Service's endpoints here (spec.healthCheckNodePort); nil: nowhere. Its
	// Healthy and Logger are the agent's. A Stepper listens nowhere.
	HealthChecks *health.Config
	Override     event.Located // interfaces that are known by name and need not be found

	// Limits bound what Services and policies may ask for: an object, a namespace, and all of them. Zero: there are no limits.
	Limits budget.Limits

	NoServices bool // leave services to others
	NoPolicies bool // leave policies unenforced
	// SourceCheck says from which addresses pods may send; zero: their own alone. It is part of the enforcement of policies: with
	// NoPolicies, or a Driver, there is none.
	SourceCheck acl.SourceCheck
	// TrustNodeAddresses lets what comes from the node's own addresses reach every pod, although nat44 gives them to pods, too. It is the
	// way to go where the node's processes have no address for this alone (Override.HostIPs, or what VPP has of Host's neighbours).
	TrustNodeAddresses bool
	// Felix says that policies and endpoints come from a Felix whose dataplane driver this agent is, as messages, and not as
	// objects; nil: they are objects.
	Felix *Felix
	// Driver is a dataplane driver outside that enforces policies, in place of renderer/acl; nil: renderer/acl does. The agent runs
	// it, and leaves the access lists in VPP to it.
	Driver *felix.Supervisor
	// AllowUnknown lets everything pass interfaces that may be a pod's while nothing is known of them; false: it is denied. With
	// NoPolicies or Driver set access lists are not this agent's, and nothing is denied.
	AllowUnknown bool
	// PostDNAT says that services are translated before the access lists of an interface's input, as cnat does. Nat44
	// translates after them, so that egress has to be judged where packets leave.
	PostDNAT bool
	// RuleCounters tells what rules of policies judged; nil: VPP is not told to count. What it was told before it goes on with.
	RuleCounters RuleCounters

	// Renderers are further renderers that get the same data as the built-in ones.
	Renderers []func(renderer.Sink) renderer.ServiceRendererAPI

	Recheck time.Duration // the time in which all that is ours in VPP is compared with the desired state once; 0: only after a reconnect
	Journal string        // file that remembers what is ours in VPP; "": memory only

	Listen       string // TCP address of /metrics, /healthz, /readyz, /livez; "": none
	Profiling    bool   // serve /debug/pprof there, too
	Healthz      string // TCP address of /healthz and /livez as kube-proxy has them (":10256"), tried until it is free; "": none
	StatusSocket string // unix socket of the status command; "": none
	// SessionsEvery is how often VPP's NAT44 sessions are counted, and freed where the table is nearly full; 0: never. It is more
	// seldom where VPP would spend more than 0.5 % of its time on counting. What source checks dropped is read as often.
	SessionsEvery time.Duration
	// SessionCounter counts them; nil, or while it fails: VPP does, which stops forwarding.
	SessionCounter SessionCounter
	// PodSessionShare is the part of the table, in percent, that a pod of this node keeps while the table is nearly full and no session
	// in it has expired: beyond, its longest idle ones are freed. 0: DefaultPodSessionShare; 100: none are.
	PodSessionShare uint8

	// Alone reports that the process has no other purpose than this agent. Then garbage is collected less often until the
	// first sync is done, unless GOGC is set.
	Alone bool

	// Settings is what whoever runs it was told beside its defaults, by the names they have there; the status shows it.
	Settings map[string]string

	// Reporter tells others what became of objects, and how the agent is; nil: nobody is told. A Stepper tells nobody.
	Reporter Reporter

	Now      func() time.Time     // the clock retries go by; nil: time.Now
	Logger   *slog.Logger         // nil: silent
	LogLevel *slog.LevelVar       // of Logger, to be changed through StatusSocket; nil: it cannot be
	Registry *prometheus.Registry // nil: an own one
	// OnCommitted sees every transaction that ended; nil: nobody.
	OnCommitted func(*event.Committed)
}

// deniesUnknown reports whether the agent closes unknown interfaces, which may be a pod's, until it has evaluated them.
func (c *Config) deniesUnknown() bool { return !c.AllowUnknown && !c.NoPolicies && c.Driver == nil }

// Validate names everything that is wrong.
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
		errs = append(errs, errors.New("policies of a Felix: cannot be left unenforced"))
	}
	if c.SessionsEvery < 0 {
		errs = append(errs, fmt.Errorf("count sessions every %s: must not be negative", c.SessionsEvery))
	}
	if c.PodSessionShare > 100 {
		errs = append(errs, fmt.Errorf("share of NAT sessions of a pod, %d %%: must be at most 100", c.PodSessionShare))
	}
	if c.Driver != nil && (c.NoPolicies || c.Felix != nil) {
		errs = append(errs, errors.New("driver: policies must be this agent's, and be enforced"))
	}
	if _, port, err := net.SplitHostPort(c.Healthz); c.Healthz != "" && (err != nil || port == "") {
		errs = append(errs, fmt.Errorf("healthz bind address %q: must be host:port", c.Healthz))
	}
	errs = append(errs, c.validateExternal(), c.ServiceRenderer.Validate())
	return errors.Join(append(errs, c.NAT44.Validate())...)
}
