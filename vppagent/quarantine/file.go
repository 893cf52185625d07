package quarantine

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/atomicfile"
)

// load reads the file, once.
func (w *Ward) load() {
	if w.loaded {
		return
	}
	w.loaded = true
	if w.cfg.File == "" {
		return
	}
	text, err := os.ReadFile(w.cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var list []*entry
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		w.cfg.Logger.Warn("quarantine: the file cannot be read, and no value is kept out", "err", err)
		return
	}
	for _, e := range list {
		if e != nil && e.Key != "" {
			w.entries[e.Key] = e
		}
	}
	w.showCounts()
}

// save writes the file.
func (w *Ward) save() {
	w.showCounts()
	if w.cfg.File == "" {
		return
	}
	list := make([]*entry, 0, len(w.entries))
	for _, e := range w.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *entry) int { return strings.Compare(a.Key, b.Key) })
	text, err := json.Marshal(list)
	if err == nil {
		err = atomicfile.Write(w.cfg.File, text, 0o600)
	}
	if err != nil {
		w.cfg.Logger.Warn("quarantine: a restart of the agent lets values in again", "err", err)
	}
}

// metrics are the metrics of a ward.
type metrics struct {
	values *prometheus.GaugeVec // by state
	total  prometheus.Counter
}

func newMetrics() metrics {
	return metrics{
		values: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "contiv_quarantine_values", Help: "Values whose requests VPP did not answer before its end, by state: suspect, quarantined.",
		}, []string{"state"}),
		total: prometheus.NewCounter(prometheus.CounterOpts{Name: "contiv_quarantined_total", Help: "How often a value was put in quarantine, because VPP ended twice with its request."}),
	}
}

// Describe describes all metrics.
func (m metrics) Describe(ch chan<- *prometheus.Desc) {
	m.values.Describe(ch)
	m.total.Describe(ch)
}

// Collect collects all metrics.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	m.values.Collect(ch)
	m.total.Collect(ch)
}

// showCounts records how many values are in each state.
func (w *Ward) showCounts() {
	out := 0
	for _, e := range w.entries {
		if e.Out {
			out++
		}
	}
	w.metrics.values.WithLabelValues("quarantined").Set(float64(out))
	w.metrics.values.WithLabelValues("suspect").Set(float64(len(w.entries) - out))
}
