package agent

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/client"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	extgrpc "github.com/contiv-agent/contiv-agent/plugins/extconfig/grpc"
	vppinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
)

// The agent retries a value that VPP refuses for now in the background until VPP accepts it, without another request; with
// all-or-nothing, the value is reverted. Neither case changes other values of the request, or the agent's own.
func TestRefusedForNow(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "grpc.sock")
	server, err := extgrpc.New(extgrpc.Config{Unix: socket})
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, func(c *Config) { c.External = []controller.ExternalConfigSource{server} })
	w.wait("first sync", firstSync)
	w.settled()
	before := len(w.agent.allValues())
	c, err := client.New(client.Config{Addr: "unix:" + socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var refuse atomic.Bool
	w.vpp.Fail(func(name string) (int32, bool) {
		if refuse.Load() && strings.HasPrefix(name, "create_loopback") {
			return -1, false
		}
		return 0, false
	})
	refuse.Store(true)
	loop := &vppinterfaces.Interface{Name: "loop1", Type: vppinterfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true}
	drop := &l3.Route{Type: l3.Route_DROP, DstNetwork: "198.51.100.0/24"}
	err = c.DataChange().AllOrNothing().Put().Interface(loop).StaticRoute(drop).Send(t.Context())
	if after := len(w.agent.allValues()); !errors.Is(err, client.ErrFailed) || after != before {
		t.Errorf("all or nothing: %v, %d values, were %d", err, after, before)
	}
	err = c.DataChange().Put().Interface(loop).StaticRoute(drop).Send(t.Context())
	var failed *client.Error
	if !errors.As(err, &failed) || len(failed.Items) != 1 || failed.Items[0].State != event.Retrying || failed.Items[0].Key != kv.InterfaceKey("loop1") {
		t.Fatalf("best effort: %v", err)
	}
	if items, err := c.State(t.Context(), client.Filter{Keys: []string{"vpp.route"}}); err != nil || !slices.ContainsFunc(items, func(i client.Item) bool { return i.Key == kv.Key(drop) }) {
		t.Errorf("the other one is not there: %v, %v", items, err)
	}
	refuse.Store(false)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		items, err := c.Config(t.Context(), client.Filter{Keys: []string{kv.InterfaceKey("loop1")}})
		if err != nil || len(items) != 1 {
			t.Fatalf("%v, %v", items, err)
		}
		if items[0].State == event.Configured {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("is %s: %s", items[0].State, items[0].Why)
		}
	}
}
