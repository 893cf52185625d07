package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
)

// outside is an external source that says what it is given.
type outside struct {
	name   string
	events chan *event.External
}

func (o outside) String() string { return o.name }

func (o outside) Run(ctx context.Context, emit func(event.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-o.events:
			emit(ev)
		}
	}
}

func TestExternalNamesDiffer(t *testing.T) {
	cfg := Config{
		NodeName: "node-1", Socket: "x", Sources: map[string]Source{"kube": Fed{}},
		External: []controller.ExternalConfigSource{outside{name: "kube"}, outside{name: "a"}, outside{name: "a"}, outside{}},
	}
	err := cfg.Validate()
	for _, want := range []string{"external source kube: ", "external source a: ", "must not be empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word about %q in: %v", want, err)
		}
	}
}

// What another program configured is still there, untouched, after a restart of the agent, however late its source is.
func TestExternalValuesOutliveARestart(t *testing.T) {
	src := outside{name: "outside", events: make(chan *event.External, 1)}
	change := func(c *Config) { c.External = []controller.ExternalConfigSource{src} }
	values := keyed.Values{}
	values.Put(&contivl3.RejectRoute{DstNetwork: "192.0.2.0/24"})
	src.events <- event.ExternalConfigResync(src.name, values)
	w := start(t, change)
	w.wait("first sync", firstSync)
	w.settled()
	_ = w.stop()

	w.run(change)
	src.events <- event.ExternalConfigChange(src.name, nil) // not what it wants, only that it is alive
	for ready := false; !ready; time.Sleep(time.Millisecond) {
		var st controller.Status
		if err := w.agent.controller.Ask(t.Context(), func(c *controller.Controller) { st = c.Status() }); err != nil {
			t.Fatal(err)
		}
		if st.Started {
			t.Fatal("programmed before the external source said what it wants")
		}
		others := 0
		for _, src := range st.Sources {
			if src.Status == event.InSync {
				others++
			}
		}
		ready = st.VPP.Connected && others == 1
	}
	src.events <- event.ExternalConfigResync(src.name, values)
	if c := w.wait("second first sync", firstSync); c.Writes != 0 || c.Add+c.Mod+c.Del != 0 {
		t.Errorf("after the restart: %+v, want nothing written", c)
	}
}
