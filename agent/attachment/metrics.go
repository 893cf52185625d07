package attachment

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/calico/felix"
)

// felixMetrics are the metrics of a session with Felix.
type felixMetrics struct {
	driver    *felix.Driver // nil: the caller feeds messages
	messages  *prometheus.Desc
	sequence  *prometheus.Desc
	inSync    *prometheus.Desc
	endpoints *prometheus.GaugeVec
}

func newFelixMetrics(driver *felix.Driver) *felixMetrics {
	return &felixMetrics{
		driver:   driver,
		messages: prometheus.NewDesc("contiv_felix_messages_total", "Messages from Felix, by kind; unknown: those that were skipped.", []string{"message"}, nil),
		sequence: prometheus.NewDesc("contiv_felix_sequence", "Number of Felix's last message.", nil, nil),
		inSync:   prometheus.NewDesc("contiv_felix_in_sync", "1 once Felix has said its configuration and all there was.", nil, nil),
		endpoints: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "contiv_felix_endpoints", Help: "Endpoints of this node by the state that is reported to Felix: up, down, error.",
		}, []string{"status"}),
	}
}

// Describe implements prometheus.Collector.
func (m *felixMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.messages, m.sequence, m.inSync} {
		ch <- d
	}
	m.endpoints.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *felixMetrics) Collect(ch chan<- prometheus.Metric) {
	m.endpoints.Collect(ch)
	if m.driver == nil {
		return
	}
	st := m.driver.State()
	for name, n := range st.Messages {
		ch <- prometheus.MustNewConstMetric(m.messages, prometheus.CounterValue, float64(n), name)
	}
	ready := 0.0
	if st.InSync {
		ready = 1
	}
	ch <- prometheus.MustNewConstMetric(m.sequence, prometheus.GaugeValue, float64(st.Sequence))
	ch <- prometheus.MustNewConstMetric(m.inSync, prometheus.GaugeValue, ready)
}

// reported counts the endpoints of a report by state.
func (m *felixMetrics) reported(r felix.Report) {
	m.endpoints.Reset()
	for _, health := range []felix.Health{felix.Up, felix.Down, felix.Error} {
		m.endpoints.WithLabelValues(string(health)).Set(0)
	}
	for _, at := range r {
		m.endpoints.WithLabelValues(string(at.Health)).Inc()
	}
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

// NewDriverMetrics returns the metrics of a driver.
func NewDriverMetrics(driver *felix.Supervisor) prometheus.Collector {
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
