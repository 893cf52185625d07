package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/backoff"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/poll"
	"github.com/contiv-agent/contiv-agent/vppagent/quarantine"
)

// One of many Services ends VPP. A running agent keeps it out and reports it, and serves all others; by hand it is let in again.
func TestALethalServiceIsKeptOut(t *testing.T) {
	l := newListening()
	w := start(t, func(c *Config) {
		c.Reporter = l
		c.Process.OnCommitted = nil // there are many retries
		c.VPP.MaxBackoff = 10 * time.Millisecond
		c.VPPAgent.Backoff = backoff.Range{Min: 20 * time.Millisecond, Max: 50 * time.Millisecond}
		c.VPPAgent.Quarantine = quarantine.New(quarantine.Config{File: filepath.Join(t.TempDir(), "q"), Logger: c.Process.Logger})
	})
	w.settled()
	w.vpp.After(func(r sim.Record) {
		if strings.Contains(r.Text, "external_addr=10.96.1.14") {
			w.vpp.Restart()
		}
	})
	w.write("more.yaml", manyServices(30))
	w.report(l, func(rep *event.Report) bool {
		return rep.Ready && slices.Equal(short(rep), []string{"Service default/s13 NotProgrammed"}) && strings.Contains(rep.Problems[0].Text, "in quarantine")
	})
	for _, svc := range w.status().Services {
		if svc.Name != "default/s13" && svc.State != event.Configured.String() || svc.Name == "default/s13" && svc.State != event.Retrying.String() {
			t.Errorf("%+v", svc)
		}
	}
	w.vpp.After(nil) // VPP is mended
	got, err := control.Release(t.Context(), w.agent.cfg.Listen.Status)
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "config/vpp/nat/v2/dnat44/default/s13: in quarantine") {
		t.Errorf("%v %v", got, err)
	}
	poll.Until(t, "the Service", func() bool { return w.status().Healthy })
}

func (w *world) status() *status.Status {
	w.t.Helper()
	st, err := w.agent.Status(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}
