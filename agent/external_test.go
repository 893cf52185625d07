package agent

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// outside is an external source that emits the events of a channel.
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
		NodeName: "node-1", VPP: vpp.Config{Socket: "x"}, Sources: map[string]Source{"kube": Fed{}},
		External: []controller.ExternalConfigSource{outside{name: "kube"}, outside{name: "a"}, outside{name: "a"}, outside{}},
	}
	err := cfg.Validate()
	for _, want := range []string{"external source kube: ", "external source a: ", "must not be empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word about %q in: %v", want, err)
		}
	}
}

// A value of another program stays unchanged in VPP over a restart of the agent, however late its source is.
func TestExternalValuesOutliveARestart(t *testing.T) {
	src := outside{name: "outside", events: make(chan *event.External, 1)}
	change := func(c *Config) { c.External = []controller.ExternalConfigSource{src} }
	values := kv.Values{}
	values.Put(&contivl3.RejectRoute{DstNetwork: "198.51.100.0/24"})
	src.events <- event.ExternalConfigResync(src.name, values)
	w := start(t, change)
	w.wait("first sync", firstSync)
	w.settled()
	_ = w.stop()

	w.run(change)
	src.events <- event.ExternalConfigChange(src.name, nil) // a sign of life, without its desired state
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

// While VPP is away a waiting client gets an error at once; the value reaches VPP when VPP is back.
func TestExternalValuesWhileVPPIsAway(t *testing.T) {
	src := outside{name: "outside", events: make(chan *event.External, 1)}
	var away atomic.Bool
	src.events <- event.ExternalConfigResync(src.name, nil)
	w := start(t, func(c *Config) {
		dial := c.VPP.Dial
		c.External, c.VPP.MaxBackoff = []controller.ExternalConfigSource{src}, 10*time.Millisecond
		c.VPP.Dial = func(ctx context.Context) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("away")
			}
			return dial(ctx)
		}
	})
	w.wait("first sync", firstSync)
	w.settled()
	away.Store(true)
	w.vpp.Restart()
	values := kv.Values{}
	values.Put(&contivl3.RejectRoute{DstNetwork: "198.51.100.0/24"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	emit := func(ev event.Event) { src.events <- ev.(*event.External) }
	result, err := event.Await(ctx, emit, event.ExternalConfigChange(src.name, values))
	if err != nil || result.Err == nil || result.Values[0].State != event.Retrying {
		t.Errorf("while VPP is away: %+v, %v", result, err)
	}
	away.Store(false)
	w.wait("repair", func(c *event.Committed) bool { return c.Resync == event.Downstream && c.Writes > 0 && c.Err == nil })
	result, err = event.Await(ctx, emit, event.ExternalConfigChange(src.name, values))
	if err != nil || result.Err != nil || result.Seq != 0 || result.Values[0].State != event.Configured {
		t.Errorf("VPP is back: %+v, %v", result, err)
	}
}

// onlooker is an external source with a view of all values.
type onlooker struct {
	outside
	values func() []event.Value
	seen   chan kv.Values
}

func (o *onlooker) Show(values func() []event.Value) { o.values = values }

func (o *onlooker) Committed(ev *event.Committed, sent func(string) proto.Message) {
	seen := kv.Values{}
	for _, st := range ev.Statuses {
		seen[st.Key] = sent(st.Key)
	}
	select {
	case o.seen <- seen:
	default:
	}
}

// An external source with a view sees all owners' values and their states.
func TestOnlooker(t *testing.T) {
	src := &onlooker{outside: outside{name: "outside", events: make(chan *event.External, 1)}, seen: make(chan kv.Values, 100)}
	route := &contivl3.RejectRoute{DstNetwork: "198.51.100.0/24"}
	values := kv.Values{}
	values.Put(route)
	src.events <- event.ExternalConfigResync(src.name, values)
	w := start(t, func(c *Config) { c.External = []controller.ExternalConfigSource{src} })
	w.wait("first sync", firstSync)
	w.settled()
	own, others := 0, 0
	for _, v := range src.values() {
		switch {
		case v.Message == nil || v.State != event.Configured || v.Since.IsZero():
			t.Errorf("%+v", v)
		case v.Key == kv.Key(route) && proto.Equal(v.Message, route):
			own++
		default:
			others++
		}
	}
	if own != 1 || others == 0 {
		t.Errorf("sees %d values of its own, %d of others", own, others)
	}
	for {
		select {
		case seen := <-src.seen:
			if proto.Equal(seen[kv.Key(route)], route) {
				return
			}
		case <-time.After(10 * time.Second):
			t.Fatal("got no event")
		}
	}
}
