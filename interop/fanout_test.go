package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// fanoutAt runs our fan-out server and returns it with its address.
func fanoutAt(t *testing.T, cfg fanout.Config) (*fanout.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Syncers = wire.SyncerTypes()
	s, err := fanout.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

// realClient is Felix's own sync client in a separate process, and its output so far.
type realClient struct {
	*Process
	status string
	values map[string]any
	gone   []string
}

func startClient(t *testing.T, addr string, args ...string) *realClient {
	t.Helper()
	cmd := exec.Command(peer(t, "client"), append([]string{"--server", addr}, args...)...)
	return &realClient{Process: start(t, "client", cmd), values: map[string]any{}}
}

// until reads lines until done.
func (c *realClient) until(done func() bool) {
	c.t.Helper()
	for !done() {
		var l struct {
			Key, Value, Status string
			Deleted            bool
		}
		if err := json.Unmarshal([]byte(c.Line()), &l); err != nil {
			c.t.Fatal(err)
		}
		switch {
		case l.Status != "":
			c.status = l.Status
		case l.Deleted:
			delete(c.values, l.Key)
			c.gone = append(c.gone, l.Key)
		default:
			c.values[l.Key] = parsed(l.Value)
		}
	}
}

// parsed is a value without the accidents of its form.
func parsed(value string) any {
	var v any
	if json.Unmarshal([]byte(value), &v) != nil {
		return value
	}
	if m, ok := v.(map[string]any); ok {
		for k, v := range m { // Calico writes what is empty, too
			if v == nil || v == "" {
				delete(m, k)
			}
		}
	}
	return v
}

func wireKV(key string, value any) wire.KV {
	b, ok := value.(string)
	if !ok {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		b = string(text)
	}
	return wire.KV{Key: key, Value: []byte(b), Revision: "7"}
}

// TestRealClientOfOurFanout: the client inside every Felix accepts our snapshots, changes, deletes and pings.
func TestRealClientOfOurFanout(t *testing.T) {
	for name, args := range map[string][]string{"snappy": nil, "plain": {"--plain"}} {
		t.Run(name, func(t *testing.T) {
			s, addr := fanoutAt(t, fanout.Config{})
			want := map[string]any{}
			send := func(status wire.Status, kvs ...wire.KV) {
				for _, kv := range kvs {
					if delete(want, kv.Key); !kv.Deleted() {
						want[kv.Key] = parsed(string(kv.Value))
					}
				}
				s.Publish(wire.Batch{Syncer: wire.Felix, Status: status, KVs: kvs})
			}
			send(wire.ResyncInProgress, wireKV("/calico/v1/Ready", "true"))
			for i := range 3000 {
				send(wire.ResyncInProgress, wireKV(podKey(fmt.Sprintf("prod/web-%d", i)),
					podValue(fmt.Sprintf("10.1.%d.%d", i/250, i%250), map[string]string{"app": "web"})))
			}
			send(wire.InSync)
			c := startClient(t, addr, args...)
			compare := func(when string) {
				t.Helper()
				if diff := cmp.Diff(want, c.values); diff != "" {
					t.Fatalf("%s (-sent +received):\n%.4000s", when, diff)
				}
			}
			heard := func(key, addr string) func() bool {
				return func() bool {
					v, _ := c.values[key].(map[string]any)
					return v != nil && cmp.Equal(v["ipv4_nets"], []any{addr + "/32"})
				}
			}
			c.until(func() bool { return c.status == "in-sync" })
			compare("in sync")
			send(wire.InSync, wire.KV{Key: podKey("prod/web-17")}, wire.KV{Key: podKey("prod/never")},
				wireKV(podKey("prod/new"), podValue("10.2.0.1", nil)), wireKV(podKey("prod/web-3"), podValue("10.2.0.2", nil)))
			c.until(heard(podKey("prod/web-3"), "10.2.0.2"))
			compare("after some changes")
			if len(c.gone) != 2 {
				t.Errorf("deletes heard: %v", c.gone)
			}
			var many []wire.KV
			for i := range 1000 {
				many = append(many, wireKV(podKey(fmt.Sprintf("prod/web-%d", i)), podValue("10.3.0.1", nil)))
			}
			send(wire.InSync, many...)
			c.until(heard(podKey("prod/web-999"), "10.3.0.1"))
			compare("after many changes")
			if !c.Running() {
				t.Error(c.Wait())
			}
		})
	}
}

// TestRealClientAnswersOurPings: pings come more often here than the client is patient, so it stays only because of them,
// and the server keeps it only because of its pongs.
func TestRealClientAnswersOurPings(t *testing.T) {
	s, addr := fanoutAt(t, fanout.Config{PingEvery: 200 * time.Millisecond, PongWithin: time.Second})
	s.Publish(wire.Batch{Syncer: wire.Felix, Status: wire.InSync, KVs: []wire.KV{wireKV("/calico/v1/Ready", "true")}})
	c := startClient(t, addr, "--read-timeout", "1s")
	c.until(func() bool { return c.status == "in-sync" })
	for i := range 5 {
		s.Publish(wire.Batch{Syncer: wire.Felix, Status: wire.InSync, KVs: []wire.KV{wireKV("/calico/v1/config/X", fmt.Sprint(i))}})
		time.Sleep(700 * time.Millisecond)
	}
	c.until(func() bool { return c.values["/calico/v1/config/X"] == parsed("4") })
	if !c.Running() {
		t.Error(c.Wait())
	}
}

// TestRealClientsOfAllSyncers: each set of keys has its clients, and none gets another's keys.
func TestRealClientsOfAllSyncers(t *testing.T) {
	s, addr := fanoutAt(t, fanout.Config{})
	for _, syncer := range wire.SyncerTypes() {
		s.Publish(wire.Batch{Syncer: syncer, Status: wire.InSync, KVs: []wire.KV{
			wireKV("/calico/v1/config/Syncer", strings.ReplaceAll(string(syncer), "-", "")),
		}})
	}
	for _, syncer := range wire.SyncerTypes() {
		c := startClient(t, addr, "--syncer", string(syncer))
		c.until(func() bool { return c.status == "in-sync" })
		if diff := cmp.Diff(map[string]any{"/calico/v1/config/Syncer": strings.ReplaceAll(string(syncer), "-", "")}, c.values); diff != "" {
			t.Errorf("%s (-want +got):\n%s", syncer, diff)
		}
	}
	c := startClient(t, addr, "--syncer", "nonsense")
	if err := c.Wait(); err == nil {
		t.Error("a client of an unknown syncer type was served")
	}
}
