// Package samples reads the metrics of a registry, for tests.
package samples

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Read returns the values of all counters and gauges, and the counts of histograms, by name and labels: `name{label="value"}`.
func Read(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// Names collects the names of the metrics that are registered with it.
type Names map[string]bool

// Register implements prometheus.Registerer.
func (n Names) Register(m prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	m.Describe(descs)
	close(descs)
	for d := range descs {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		n[name] = true
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (n Names) MustRegister(all ...prometheus.Collector) {
	for _, m := range all {
		_ = n.Register(m)
	}
}

// Unregister implements prometheus.Registerer.
func (Names) Unregister(prometheus.Collector) bool { return false }
