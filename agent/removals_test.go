package agent

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/test/poll"
)

// manyServices are Services with cluster IPs, and the Pod's endpoint behind each.
func manyServices(n int) string {
	var out []string
	for i := range n {
		name := fmt.Sprintf("s%02d", i)
		out = append(out, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {clusterIP: 10.96.1.%d, clusterIPs: [10.96.1.%d], ports: [{port: 80}]}`, name, i+1, i+1),
			strings.ReplaceAll(endpoints, "web", name))
	}
	return strings.Join(out, "\n---\n")
}

// guarded returns a change of the configuration: a guard with a record in the folder, which is new with each agent.
func guarded(dir string, more func(*Config)) func(*Config) {
	return func(c *Config) {
		c.Process.Removals = lossguard.New(lossguard.Config{
			Limits: lossguard.Limits{Share: 50, Least: 20}, Record: filepath.Join(dir, "counts"), Logger: c.Process.Logger,
		})
		if more != nil {
			more(c)
		}
	}
}

func (w *world) heldText() string {
	w.t.Helper()
	st, err := w.agent.Status(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range st.Problems {
		if p.State == status.Held {
			return p.Object + ": " + p.Text + "; " + st.Summary
		}
	}
	return ""
}

// An empty folder of manifests stands for an API server that lost its objects. VPP keeps everything until a person releases the removals; an addition
// passes meanwhile.
func TestRemovalsAreHeld(t *testing.T) {
	l := newListening()
	w := start(t, guarded(t.TempDir(), func(c *Config) { c.Reporter = l }), manyServices(30))
	w.wait("first sync", firstSync)
	w.settled()
	before := w.vpp.Dump()
	w.write("objects.yaml", objects)
	poll.Until(t, "the hold", func() bool { return w.heldText() != "" })
	if text := w.heldText(); !strings.Contains(text, "30 of 31 frontends") || !strings.HasSuffix(text, "1 HELD") {
		t.Error(text)
	}
	w.report(l, func(rep *event.Report) bool { return slices.Contains(short(rep), "Node node-1 RemovalsHeld") })
	w.write("more.yaml", strings.ReplaceAll(manyServices(31)[strings.LastIndex(manyServices(31), "apiVersion: v1"):], "s30", "new"))
	w.wait("addition", func(c *event.Committed) bool {
		return strings.Contains(c.Cause, "default/new") && c.Add > 0 && c.Del == 0
	})
	for line := range strings.Lines(before) {
		if strings.Contains(line, "10.96.1.7:80") && !strings.Contains(w.vpp.Dump(), line) {
			t.Errorf("VPP lost %s", line)
		}
	}
	if got, err := control.Release(t.Context(), w.agent.cfg.Listen.Status); err != nil || len(got) != 1 || !strings.Contains(got[0], "30 of 32 frontends") {
		t.Errorf("%v %v", got, err)
	}
	poll.Until(t, "the removals", func() bool { return !strings.Contains(w.vpp.Dump(), "10.96.1.7:80") && w.heldText() == "" })
	if got, err := control.Release(t.Context(), w.agent.cfg.Listen.Status); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

// An agent that starts again, and finds the API server empty, removes nothing from VPP.
func TestFirstSyncIsHeldAfterARestart(t *testing.T) {
	dir := t.TempDir()
	w := start(t, guarded(dir, nil), manyServices(30))
	w.wait("first sync", firstSync)
	w.settled()
	_ = w.stop()
	before := w.vpp.Dump()
	w.write("objects.yaml", objects)
	w.vpp.ClearLog()
	w.run(guarded(dir, nil))
	poll.Until(t, "the hold", func() bool { return strings.Contains(w.heldText(), "the first sync is held") })
	if w.vpp.Dump() != before || w.agent.reader.Unready() == "" {
		t.Errorf("VPP changed, or the agent is ready: %q", w.agent.reader.Unready())
	}
	w.write("objects.yaml", objects+"\n---\n"+manyServices(30)) // the API server is restored
	w.wait("first sync", firstSync)
	poll.Until(t, "the end of the hold", func() bool { return w.heldText() == "" })
	if got := w.vpp.Dump(); got != before || w.vpp.Writes() != 0 {
		t.Errorf("%d writes", w.vpp.Writes())
	}
	_ = w.stop()
	w.write("objects.yaml", objects)
	w.run(guarded(dir, nil))
	poll.Until(t, "the hold", func() bool { return w.heldText() != "" })
	if _, err := control.Release(t.Context(), w.agent.cfg.Listen.Status); err != nil {
		t.Fatal(err)
	}
	w.wait("first sync", firstSync)
	poll.Until(t, "the removals", func() bool { return !strings.Contains(w.vpp.Dump(), "10.96.1.7:80") })
}
