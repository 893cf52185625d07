package agent

import (
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/event"
)

// The socket of an agent serves the objects that it has: those of its sources after each change.
func TestSocketServesObjects(t *testing.T) {
	w := start(t, nil)
	w.wait("first sync", firstSync)
	names := func() string {
		t.Helper()
		changes, err := control.FetchObjects(t.Context(), w.agent.cfg.Listen.Status)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, ch := range changes {
			out = append(out, ch.Ref.String())
		}
		return strings.Join(out, ", ")
	}
	before := names()
	if !strings.Contains(before, "Node node-1") || !strings.Contains(before, "Service default/web") || strings.Contains(before, "EndpointSlice") {
		t.Errorf("objects: %s", before)
	}
	w.write("slice.yaml", endpoints)
	w.wait("change", func(c *event.Committed) bool { return strings.Contains(c.Cause, "endpointslice/default/web-1") })
	if after := names(); !strings.Contains(after, "EndpointSlice default/web-1") {
		t.Errorf("objects: %s", after)
	}
}
