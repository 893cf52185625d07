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
)

// An agent with an external dataplane driver calculates policies, and does not enforce them.
//
//	plugins/policy ─┬─▶ felix.Supervisor ─ fd 3 ─▶ driver ─▶ access lists in VPP
//	nodeFeed ───────┘                    ◀─ fd 4 ─┘ state of endpoints
//	plugins/service ─▶ renderer/nat44 ─▶ vppagent ─▶ everything else in VPP

// nodeFeed sends a driver the messages that Felix sends beside policies: the nodes' addresses, their pod prefixes, and the
// Services.
type nodeFeed struct {
	driver sink
	graph  *calc.Graph
	nodes  map[string]*model.Node
}

// sink receives the messages; felix.Supervisor implements it.
type sink interface {
	OnUpdate(*pb.ToDataplane)
	Apply() (again bool)
}

func newNodeFeed(node string, driver sink) *nodeFeed {
	return &nodeFeed{driver: driver, graph: calc.New(calc.Config{Node: node, NodeResources: true}), nodes: map[string]*model.Node{}}
}

// Apply implements controller.Processor.
func (t *nodeFeed) Apply(ch event.Change) {
	switch ch.Ref.Kind {
	case model.KindService:
		s, _ := ch.Object.(*model.Service)
		t.graph.SetService(model.ServiceID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}, s)
	case model.KindNode:
		n, _ := ch.Object.(*model.Node)
		t.node(ch.Ref.Name, n)
	}
}

// node sends a Node in Calico's form: one address of each family, and the prefixes of its pods as blocks.
func (t *nodeFeed) node(name string, n *model.Node) {
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
func (*nodeFeed) Located(*event.Located) {}

// Flush implements controller.Processor. This graph is never in sync: the other one sends policies, endpoints and
// configuration.
func (t *nodeFeed) Flush() error {
	for _, m := range t.graph.Flush() {
		t.driver.OnUpdate(m)
	}
	t.driver.Apply()
	return nil
}

// Resync implements controller.Processor.
func (t *nodeFeed) Resync() error { return t.Flush() }

// DriverStatus is the state of an external driver.
type DriverStatus struct {
	Path      string          `json:"path"`
	PID       int             `json:"pid,omitempty"` // 0: not running
	Starts    uint64          `json:"starts"`
	InSync    bool            `json:"inSync"`            // it has received in-sync
	Behind    int             `json:"behind,omitempty"`  // objects whose latest state it has not received
	Sequence  uint64          `json:"sequence"`          // messages sent to it
	Alive     string          `json:"alive,omitempty"`   // time of its last sign of life
	Trouble   string          `json:"trouble,omitempty"` // why it last ended, or does not start
	Endpoints []FelixEndpoint `json:"endpoints,omitempty"`
}

// driverStatus adds the state of the driver. Until the driver has received everything, the agent is not healthy.
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

// drivenStatus returns the state of a policy, as the driver reports it for its endpoints.
func drivenStatus(s policy.Status, driver *felix.SupervisorStatus) PolicyStatus {
	status := PolicyStatus{Object: s.Policy.ID.String(), Tier: s.Policy.Tier, State: stateIdle, Text: governs(s)}
	if len(s.Endpoints) == 0 {
		return status
	}
	worst := event.Configured
	if !driver.InSync || driver.Behind > 0 {
		worst = event.Pending
		status.Reasons = append(status.Reasons, "the driver has not received everything")
	}
	for _, at := range s.Endpoints {
		switch health := healthOf(driver, at); health {
		case felix.Up:
		case felix.Error:
			worst = max(worst, event.Failed)
			status.Reasons = append(status.Reasons, at.Endpoint+": the driver reports an error")
		case "":
			worst = max(worst, event.Pending)
			status.Reasons = append(status.Reasons, at.Endpoint+": the driver has not reported it")
		default:
			worst = max(worst, event.Pending)
			status.Reasons = append(status.Reasons, fmt.Sprintf("%s: the driver reports %q", at.Endpoint, health))
		}
	}
	status.State = worst.String()
	return status
}

// healthOf returns the driver's report about an endpoint.
func healthOf(driver *felix.SupervisorStatus, at policy.Applied) felix.Health {
	for id, health := range driver.Endpoints {
		if id.Host() == at.Host && (id.Workload == at.Endpoint || at.Host && id.Endpoint == at.Endpoint) {
			return health
		}
	}
	return ""
}

// driverMetrics are the metrics of an external driver. Collect reads the supervisor each time.
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
		up:        prometheus.NewDesc("contiv_driver_up", "1 while the external dataplane driver runs and has received in-sync.", nil, nil),
		starts:    prometheus.NewDesc("contiv_driver_starts_total", "How often the driver was started.", nil, nil),
		behind:    prometheus.NewDesc("contiv_driver_behind", "Objects whose latest state the driver has not received.", nil, nil),
		messages:  prometheus.NewDesc("contiv_driver_messages", "Messages sent to the running driver.", nil, nil),
		endpoints: prometheus.NewDesc("contiv_driver_endpoints", "Endpoints of this node by the state that the driver reports.", []string{"status"}, nil),
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
			health = felix.Down // another text for down
		}
		count[health]++
	}
	for health, n := range count {
		ch <- prometheus.MustNewConstMetric(m.endpoints, prometheus.GaugeValue, float64(n), string(health))
	}
}
