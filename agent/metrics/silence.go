package metrics

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// silenceMetrics are the metrics of a VPP that does not answer. The gauge is computed when it is collected, because silence
// lasts without events.
type silenceMetrics struct {
	now      atomic.Pointer[vpp.Silence]
	seconds  prometheus.GaugeFunc
	silences prometheus.Counter
}

func newSilenceMetrics() *silenceMetrics {
	m := &silenceMetrics{
		silences: prometheus.NewCounter(prometheus.CounterOpts{Name: "contiv_vpp_silences_total", Help: "How often VPP did not answer for 1.25 s or longer."}),
	}
	m.now.Store(&vpp.Silence{})
	m.seconds = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "contiv_vpp_silent_seconds", Help: "Time since VPP's last answer, if that is 1.25 s or longer; 0: it answers, or is not connected.",
	}, func() float64 { return m.now.Load().For(time.Now()).Seconds() })
	return m
}

func (m *silenceMetrics) registerSilence(r prometheus.Registerer) error {
	return errors.Join(r.Register(m.seconds), r.Register(m.silences))
}

// setSilence records the connection's state.
func (m *silenceMetrics) setSilence(s vpp.Silence) {
	if was := m.now.Swap(&s); was.Since.IsZero() && !s.Since.IsZero() {
		m.silences.Inc()
	}
}
