// Package config turns the settings of an agent into one checked value. Each room states its settings in a Config; an agent's
// Config holds those of all rooms, so that a new setting touches its room and the command alone.
//
// Invariant: Validate finds every error that is known before VPP is asked.
package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/owner"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
	"github.com/contiv-agent/contiv-agent/recorder"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// DefaultRecheck is VPPAgent.Recheck of the commands. The agent restores a mapping that another program removes within that
// time, and a detached access list within a fifth of it. docs/operations.md has the cost of a round.
const DefaultRecheck = 30 * time.Second

// Config is the configuration of one agent. Of a room's Config, the agent itself sets the fields that connect rooms: other rooms,
// callbacks, clock and logger.
type Config struct {
	NodeName string // name of this node's Node object; must not be empty

	// VPP is the connection: Socket, or Dial for tests and simulations; MaxBackoff.
	VPP vpp.Config
	// Lock is the path of the files that keep a second agent off this VPP; the agent appends the part of VPP that it owns.
	// "": none. Agents that own different parts can run at the same time. A Stepper takes no lock, because it may only read.
	Lock string
	// VPPAgent says how VPP is kept equal to the desired state: Journal, Recheck, Stall. A Stepper makes no pauses, and divides
	// nothing unless Stall is set.
	VPPAgent vppagent.Config

	// Sources by name. The agent programs nothing before all have been in sync once.
	Sources map[string]Source
	// External are the sources of other programs' configuration. The agent programs nothing before each has sent its desired
	// state once. Their names must differ from each other and from those of Sources. The agent serves the metrics of those
	// that are prometheus.Collectors. With any of them, and without VPP.Dial, the agent also configures the host's interfaces,
	// routes and neighbours in the kernel.
	External []controller.ExternalConfigSource

	// Pods is the node's network, to which container runtimes connect pods; nil: another program connects them. With it the agent also
	// configures the kernel, as with External, and Listen.Status serves the CNI plugin. A Stepper has none.
	Pods *Pods

	Override event.Located // interfaces given by name, which the agent does not look for
	// Limits bound what Services and policies may require: per object, per namespace, and in total. Zero: no limits.
	Limits   budget.Limits
	Services Services
	Policies Policies

	// NATTable says how the agent watches VPP's NAT44 session table: Every, Counter, PodShare. Every is 0: it does not, and does
	// not read the drops of source checks, which have the same period.
	NATTable nattable.Config

	Listen Listeners
	// Reporter reports the state of objects and of the agent to Kubernetes; nil: no reports. A Stepper does not report.
	Reporter Reporter
	Process  Process
}

// Source delivers Kubernetes objects; source/manifest and source/kube implement it.
type Source interface {
	// Run emits updates and sync states until ctx ends.
	Run(ctx context.Context, emit func(event.Event)) error
}

// Reporter reports the state of objects and of the agent to Kubernetes; source/kube/report implements it.
type Reporter interface {
	// Run reports until ctx ends. changes counts the changes of the agent's state; ask returns the current report.
	Run(ctx context.Context, changes func() uint64, ask func(context.Context) (*event.Report, error)) error
}

// Services says which Services an agent serves, and how.
type Services struct {
	Off bool // do not serve Services; needs Policies.Off or Policies.Felix
	// Config says what of Services is served, and where.
	service.Config
	// Renderer selects the renderer of Services, and has the settings of each; zero: auto.
	Renderer builtin.Config
	// More are additional renderers, which get the same data as the built-in ones.
	More []func(renderer.Sink) renderer.ServiceRendererAPI
	// Health configures the health checks of load balancers (spec.healthCheckNodePort); nil: none. A Stepper does not listen.
	Health *health.Config
}

// ServedBy are all Services, served by a choice of renderers with its defaults.
func ServedBy(c builtin.Choice) Services { return Services{Renderer: builtin.Config{Choice: c}} }

// Policies says which policies an agent enforces, and how.
type Policies struct {
	Off bool // do not enforce policies
	// Config has TrustNodeAddresses. It is needed if the node's processes have no separate address (Override.HostIPs, or
	// VPP's neighbours on Host).
	policy.Config
	// ACL has SourceCheck, which is part of policy enforcement: if the policies are Off, or with a Driver, the agent does not
	// check.
	ACL acl.Config
	// AllowUnknown lets all packets pass interfaces that may be a pod's until the agent has evaluated the pod; false: they
	// are denied. If the policies are Off, or with a Driver, the agent attaches no access lists, and denies nothing.
	AllowUnknown bool
	// PostDNAT means that services are translated before the access lists of an interface's input, as cnat does. Nat44
	// translates after them, so egress must be evaluated where packets leave.
	PostDNAT bool
	// Counters reads VPP's counters of rules; nil: the agent does not switch counting on. It never switches it off.
	Counters counters.RuleCounters
	// Felix means that policies and endpoints are the messages of a Felix whose dataplane driver this agent is; nil: they
	// are objects.
	Felix *attachment.Felix
	// Driver is an external dataplane driver that enforces policies instead of renderer/acl; nil: renderer/acl does. The
	// agent runs the driver, and leaves the access lists in VPP to it.
	Driver *felix.Supervisor
}

// Listeners are the addresses at which an agent answers; "": it does not.
type Listeners struct {
	Metrics   string // TCP address of /metrics, /healthz, /readyz, /livez
	Profiling bool   // also serve /debug/pprof on Metrics
	Healthz   string // TCP address of /healthz and /livez as kube-proxy serves them (":10256"), retried until it is free
	Status    string // unix socket of the status command
}

// Process is what the process gives to its agent.
type Process struct {
	// Alone means that the process runs only this agent. Then garbage collection runs less often until the first sync is
	// done, unless GOGC is set.
	Alone    bool
	Version  string               // of the program, for the metric contiv_build_info
	Flags    map[string]string    // the flags that differ from their defaults, by name; the status shows them
	Now      func() time.Time     // the clock for retries; nil: time.Now
	Logger   *slog.Logger         // nil: silent
	LogLevel *slog.LevelVar       // of Logger; Listen.Status can change it; nil: fixed
	Registry *prometheus.Registry // nil: a new one
	// VerifyEvery is the period in which the agent compares its VPP with its objects for all packets (agent/proof); 0: only on request.
	VerifyEvery time.Duration
	// Recorder records every event; nil: none does. A Stepper does not record.
	Recorder *recorder.Recorder
	// Removals holds the removal of many objects at once; nil: nothing is held. A Stepper holds nothing.
	Removals *lossguard.Guard
	// Flows watches connections and dropped packets; nil: nothing does. A Stepper does not watch.
	Flows *flows.Watcher
	// Capture captures packets of pods on request; nil: requests are refused.
	Capture *capture.Interface
	// OnCommitted is called for every transaction that ended; nil: not called.
	OnCommitted func(*event.Committed)
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("node name: must not be empty"))
	}
	if c.VPP.Socket == "" && c.VPP.Dial == nil {
		errs = append(errs, errors.New("vpp socket: must not be empty"))
	}
	if a := c.Services.Loopback; a.IsValid() && !a.Is4() {
		errs = append(errs, fmt.Errorf("NAT loopback %s: must be an IPv4 address", a))
	}
	if d := c.VPP.MaxBackoff; d < 0 {
		errs = append(errs, fmt.Errorf("pause %s between attempts to reach VPP: must not be negative", d))
	}
	if d := c.VPPAgent.Recheck; d < 0 {
		errs = append(errs, fmt.Errorf("recheck %s: must not be negative", d))
	}
	if c.Policies.Felix != nil && c.Policies.Off {
		errs = append(errs, errors.New("policies of a Felix: NoPolicies must not be set"))
	}
	if c.Services.Off && !c.Policies.Off && c.Policies.Felix == nil { // no policy would find a pod's interface, and every pod would stay closed
		errs = append(errs, errors.New("Services.Off: policies from objects need the interfaces of pods, which only an agent that serves Services finds; "+
			"also set Policies.Off, or have the policies from Policies.Felix"))
	}
	if d := c.NATTable.Every; d < 0 {
		errs = append(errs, fmt.Errorf("count sessions every %s: must not be negative", d))
	}
	if n := c.NATTable.PodShare; n > 100 {
		errs = append(errs, fmt.Errorf("share of NAT sessions of a pod, %d %%: must be at most 100", n))
	}
	if c.Policies.Driver != nil && (c.Policies.Off || c.Policies.Felix != nil) {
		errs = append(errs, errors.New("driver: needs enforced policies from objects"))
	}
	if _, port, err := net.SplitHostPort(c.Listen.Healthz); c.Listen.Healthz != "" && (err != nil || port == "") {
		errs = append(errs, fmt.Errorf("healthz bind address %q: must be host:port", c.Listen.Healthz))
	}
	if c.Pods != nil && c.Listen.Status == "" {
		errs = append(errs, errors.New("network of pods: the CNI plugin needs the status socket"))
	}
	if c.Pods != nil && c.Policies.Felix != nil {
		errs = append(errs, errors.New("network of pods: pods of a Felix have their interfaces from another program"))
	}
	errs = append(errs, c.validateExternal(), c.Services.Renderer.Choice.Validate())
	return errors.Join(append(errs, c.Services.Renderer.NAT44.Validate())...)
}

// validateExternal returns errors for external sources with an empty or duplicate name.
func (c *Config) validateExternal() error {
	var errs []error
	seen := map[string]bool{}
	for _, src := range c.External {
		name := src.String()
		_, taken := c.Sources[name]
		switch {
		case name == "":
			errs = append(errs, errors.New("external source: its name must not be empty"))
		case taken || seen[name] || c.Policies.Felix != nil && name == felix.SourceName:
			errs = append(errs, fmt.Errorf("external source %s: another source has this name", name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

// SourceNames returns the names of all sources that must be in sync before the agent programs VPP.
func (c *Config) SourceNames() []string {
	var names []string
	for name := range c.Sources {
		names = append(names, name)
	}
	for _, src := range c.External {
		names = append(names, src.String())
	}
	slices.Sort(names)
	return names
}

// DeniesUnknown reports whether the agent closes unknown interfaces, which may be a pod's, until it has evaluated them.
func (c *Config) DeniesUnknown() bool {
	return !c.Policies.AllowUnknown && !c.Policies.Off && c.Policies.Driver == nil
}

// Share returns the part of VPP that this agent owns.
func (c *Config) Share() owner.Share {
	switch {
	case c.Policies.Driver != nil:
		return owner.Services
	case c.Policies.Felix != nil && c.Services.Off:
		return owner.Policies
	}
	return owner.All
}

// ServedFamilies returns the address families in which this agent serves Services.
func (c *Config) ServedFamilies() renderer.Families {
	if c.Services.Off {
		return renderer.Families{}
	}
	return c.Services.Renderer.Choice.Served()
}

// PostDNAT4 reports whether access lists of an input see the endpoint in IPv4 packets to Services.
func (c *Config) PostDNAT4() bool {
	return c.Policies.PostDNAT || !c.Services.Off && c.Services.Renderer.Choice.PostDNAT().IPv4
}

// NoSourceRanges returns why this agent does not enforce source ranges; "": it does.
func (c *Config) NoSourceRanges() string {
	switch {
	case c.Policies.Off:
		return nat44.PoliciesOff
	case c.Policies.Driver != nil:
		return nat44.ListsOfDriver
	}
	return ""
}
