package control

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics and the journal are served by the socket; an agent without them says so.
func TestMetricsAndJournal(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "contiv_things_total", Help: "Things."})
	registry.MustRegister(counter)
	counter.Add(3)
	at := served(t, &Server{Registry: registry, Journal: func(w io.Writer, most int64) error {
		if most != 7 {
			t.Errorf("asked for %d bytes", most)
		}
		_, err := io.WriteString(w, "journal")
		return err
	}})
	var metrics, journal bytes.Buffer
	if err := errors.Join(FetchMetrics(t.Context(), at, &metrics), FetchJournal(t.Context(), at, 7, &journal)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(metrics.String(), "\ncontiv_things_total 3\n") || journal.String() != "journal" {
		t.Errorf("%s, %s", &metrics, &journal)
	}
	if err := FetchJournal(t.Context(), at, 0, io.Discard); err == nil || !strings.Contains(err.Error(), "must be a number of bytes") {
		t.Error(err)
	}
	at = served(t, &Server{})
	if err := FetchMetrics(t.Context(), at, io.Discard); err == nil || !strings.Contains(err.Error(), "this agent has no metrics") {
		t.Error(err)
	}
	if err := FetchJournal(t.Context(), at, 1, io.Discard); err == nil || !strings.Contains(err.Error(), "keeps no journal (run --flight-recorder)") {
		t.Error(err)
	}
}
