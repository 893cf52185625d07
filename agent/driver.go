package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// An agent over somebody else's dataplane driver calculates policies, and enforces none itself.
//
//	plugins/policy ─┬─▶ felix.Supervisor ─ fd 3 ─▶ driver ─▶ access lists in VPP
//	teller ─────────┘                    ◀─ fd 4 ─┘ how endpoints are
//	plugins/service ─▶ renderer/nat44 ─▶ vppagent ─▶ everything else in VPP

// kinds are the kinds of values the agent keeps in VPP. Two agents at one VPP must not sweep up each other's: the agent over a
// driver leaves access lists to it, and a driver of policies alone leaves services.
func kinds(cfg Config) []*descriptor.Descriptor {
	driven := cfg.Driver != nil
	alone := cfg.Felix != nil && cfg.NoServices
	if !driven && !alone {
		return nil
	}
	lists := []string{
		descriptor.ACL().Name, descriptor.DenyACL().Name, descriptor.InterfaceACLs().Name, descriptor.SCTPPorts().Name, descriptor.SCTPFilter().Name,
		descriptor.RangesACL().Name, descriptor.PermitACL().Name, descriptor.SourceRangesEnforced().Name, descriptor.SourceRanges().Name,
	}
	services := []string{
		descriptor.Nat44Global().Name, descriptor.Nat44Settings().Name, descriptor.Nat44AddressPool().Name,
		descriptor.Nat44Interface().Name, descriptor.DNat44().Name, descriptor.RejectRoute().Name,
		descriptor.SnatPolicy().Name, descriptor.CnatInterface().Name, descriptor.CnatTranslation().Name,
	}
	return slices.DeleteFunc(descriptor.All(), func(d *descriptor.Descriptor) bool {
		return driven && slices.Contains(lists, d.Name) || alone && slices.Contains(services, d.Name)
	})
}

// teller tells a driver what Felix tells beside policies: where nodes are, which prefixes of pods they have, and the Services.
type teller struct {
	driver told
	graph  *calc.Graph
	nodes  map[string]*model.Node
}

// told is who is told: a felix.Supervisor.
type told interface {
	OnUpdate(*pb.ToDataplane)
	Apply() (again bool)
}

func newTeller(node string, driver told) *teller {
	return &teller{driver: driver, graph: calc.New(calc.Config{Node: node, NodeResources: true}), nodes: map[string]*model.Node{}}
}

// Apply implements controller.Processor.
func (t *teller) Apply(ch event.Change) {
	switch ch.Ref.Kind {
	case model.KindService:
		s, _ := ch.Object.(*model.Service)
		t.graph.SetService(model.ServiceID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}, s)
	case model.KindNode:
		n, _ := ch.Object.(*model.Node)
		t.node(ch.Ref.Name, n)
	}
}

// node tells of a Node as Calico has it: an address of each family, and the prefixes of its pods as blocks.
func (t *teller) node(name string, n *model.Node) {
	if old := t.nodes[name]; old != nil {
		for _, p := range old.PodCIDRs {
			if n == nil || !slices.Contains(n.PodCIDRs, p) {
				t.graph.SetBlock(p, nil)
			}
		}
	}
	if delete(t.nodes, name); n == nil {
		t.graph.SetHostIP(name, netip.Addr{})
		t.graph.SetHost(name, nil)
		return
	}
	t.nodes[name] = n
	h := &model.Host{Name: name, Labels: n.Labels, Addrs: n.Addrs()}
	for _, a := range h.Addrs {
		switch p := netip.PrefixFrom(a, a.BitLen()); {
		case a.Is4() && !h.IPv4.IsValid():
			h.IPv4, h.Net4 = a, p
		case a.Is6() && !h.IPv6.IsValid():
			h.IPv6, h.Net6 = a, p
		}
	}
	t.graph.SetHostIP(name, h.IPv4)
	t.graph.SetHost(name, h)
	for _, p := range n.PodCIDRs {
		t.graph.SetBlock(p, &model.Block{CIDR: p, Node: name})
	}
}

// Located implements controller.Processor.
func (*teller) Located(*event.Located) {}

// Flush implements controller.Processor. The graph is never in sync: of policies, endpoints and configuration the other one
// tells.
func (t *teller) Flush() error {
	for _, m := range t.graph.Flush() {
		t.driver.OnUpdate(m)
	}
	t.driver.Apply()
	return nil
}

// Resync implements controller.Processor.
func (t *teller) Resync() error { return t.Flush() }

// DriverStatus is how it stands with a driver outside.
type DriverStatus struct {
	Path      string          `json:"path"`
	PID       int             `json:"pid,omitempty"` // 0: it does not run
	Starts    uint64          `json:"starts"`
	InSync    bool            `json:"inSync"`            // it was told that all is known
	Behind    int             `json:"behind,omitempty"`  // things it was not told as they are
	Sequence  uint64          `json:"sequence"`          // messages it was told
	Alive     string          `json:"alive,omitempty"`   // when it last said that it lives
	Trouble   string          `json:"trouble,omitempty"` // why it ended last, or does not start
	Endpoints []FelixEndpoint `json:"endpoints,omitempty"`
}

// driverStatus adds how it stands with the driver. While it was not told everything, the agent is not well.
func (p *parts) driverStatus(out *Status) {
	if p.cfg.Driver == nil {
		return
	}
	st := p.cfg.Driver.Status()
	out.driver, out.Driver = st, shownDriver(st)
	if st.PID != 0 && st.InSync {
		return
	}
	out.InSync, out.Ready = false, false
	if out.Waiting == "" {
		out.Waiting = "the dataplane driver"
		if st.PID == 0 && st.Trouble != "" {
			out.Waiting += ": " + st.Trouble
		}
	}
}

func shownDriver(st *felix.SupervisorStatus) *DriverStatus {
	out := &DriverStatus{
		Path: st.Path, PID: st.PID, Starts: st.Starts, InSync: st.InSync, Behind: st.Behind, Sequence: st.Sequence, Alive: st.Alive, Trouble: st.Trouble,
	}
	for id, health := range st.Endpoints {
		out.Endpoints = append(out.Endpoints, FelixEndpoint{Name: id.String(), Status: string(health)})
	}
	slices.SortFunc(out.Endpoints, func(a, b FelixEndpoint) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// drivenStatus is what became of a policy, as the driver says it of the endpoints it applies to.
func drivenStatus(s policy.Status, driver *felix.SupervisorStatus) PolicyStatus {
	status := PolicyStatus{Object: s.Policy.ID.String(), Tier: s.Policy.Tier, State: stateIdle, Text: governs(s)}
	if len(s.Endpoints) == 0 {
		return status
	}
	worst := event.Configured
	if !driver.InSync || driver.Behind > 0 {
		worst = event.Pending
		status.Reasons = append(status.Reasons, "the driver was not told everything")
	}
	for _, at := range s.Endpoints {
		switch health := healthOf(driver, at); health {
		case felix.Up:
		case felix.Error:
			worst = max(worst, event.Failed)
			status.Reasons = append(status.Reasons, at.Endpoint+": the driver reports an error")
		case "":
			worst = max(worst, event.Pending)
			status.Reasons = append(status.Reasons, at.Endpoint+": the driver has said nothing of it")
		default:
			worst = max(worst, event.Pending)
			status.Reasons = append(status.Reasons, fmt.Sprintf("%s: the driver says %q", at.Endpoint, health))
		}
	}
	status.State = worst.String()
	return status
}

// healthOf is what the driver says of an endpoint.
func healthOf(driver *felix.SupervisorStatus, at policy.Applied) felix.Health {
	for id, health := range driver.Endpoints {
		if id.Host() == at.Host && (id.Workload == at.Endpoint || at.Host && id.Endpoint == at.Endpoint) {
			return health
		}
	}
	return ""
}

// driverMetrics shows how it stands with a driver outside. It reads the supervisor whenever it is asked.
type driverMetrics struct {
	driver    *felix.Supervisor
	up        *prometheus.Desc
	starts    *prometheus.Desc
	behind    *prometheus.Desc
	messages  *prometheus.Desc
	endpoints *prometheus.Desc
}

func newDriverMetrics(driver *felix.Supervisor) *driverMetrics {
	return &driverMetrics{
		driver:    driver,
		up:        prometheus.NewDesc("contiv_driver_up", "1 while the dataplane driver outside runs and was told all there was.", nil, nil),
		starts:    prometheus.NewDesc("contiv_driver_starts_total", "How often the driver was started.", nil, nil),
		behind:    prometheus.NewDesc("contiv_driver_behind", "Things the driver was not told as they are.", nil, nil),
		messages:  prometheus.NewDesc("contiv_driver_messages", "Messages this life of the driver was told.", nil, nil),
		endpoints: prometheus.NewDesc("contiv_driver_endpoints", "Endpoints of this node by what the driver says of them.", []string{"status"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *driverMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.starts, m.behind, m.messages, m.endpoints} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *driverMetrics) Collect(ch chan<- prometheus.Metric) {
	st := m.driver.Status()
	up := 0.0
	if st.InSync && st.PID != 0 {
		up = 1
	}
	ch <- prometheus.MustNewConstMetric(m.up, prometheus.GaugeValue, up)
	ch <- prometheus.MustNewConstMetric(m.starts, prometheus.CounterValue, float64(st.Starts))
	ch <- prometheus.MustNewConstMetric(m.behind, prometheus.GaugeValue, float64(st.Behind))
	ch <- prometheus.MustNewConstMetric(m.messages, prometheus.GaugeValue, float64(st.Sequence))
	count := map[felix.Health]int{felix.Up: 0, felix.Down: 0, felix.Error: 0}
	for _, health := range st.Endpoints {
		if _, known := count[health]; !known {
			health = felix.Down // in other words
		}
		count[health]++
	}
	for health, n := range count {
		ch <- prometheus.MustNewConstMetric(m.endpoints, prometheus.GaugeValue, float64(n), string(health))
	}
}
