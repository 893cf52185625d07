package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// heard is what a server received: the keys of each set in each form, and the statuses.
type heard struct {
	mu     sync.Mutex
	keys   map[string]map[string]string
	status map[string][]wire.Status
}

func (h *heard) publish(b wire.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	set := fmt.Sprint(b.Syncer, b.Modern)
	if h.keys == nil {
		h.keys, h.status = map[string]map[string]string{}, map[string][]wire.Status{}
	}
	if h.keys[set] == nil {
		h.keys[set] = map[string]string{}
	}
	for _, kv := range b.KVs {
		if kv.Deleted() {
			delete(h.keys[set], kv.Key)
		} else {
			h.keys[set][kv.Key] = string(kv.Value)
		}
	}
	if st := h.status[set]; len(st) == 0 || st[len(st)-1] != b.Status {
		h.status[set] = append(st, b.Status)
	}
}

func (h *heard) list(set string, containing string) (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(h.keys[set])) {
		if strings.Contains(key, containing) {
			out = append(out, key)
		}
	}
	return out
}

// script is a source that emits given events, in order.
type script struct{ events []event.Event }

func (s script) Run(ctx context.Context, emit func(event.Event)) error {
	for _, ev := range s.events {
		emit(ev)
	}
	<-ctx.Done()
	return ctx.Err()
}

const (
	tieredKey = "/calico/v1/policy/tier/default/policy/prod%2fknp.default.web"
	movedKey  = "/calico/v1/policy/tier/sec/policy/prod%2fsec.web"
	modernKey = "/calico/v1/policy/NetworkPolicy/prod/web"
)

func TestFanoutOfObjects(t *testing.T) {
	ref := func(name string) model.Ref { return model.Ref{Kind: model.KindNode, Name: name} }
	put := func(name string, keys ...string) event.Change {
		var kvs []calico.KV
		for _, k := range keys {
			kvs = append(kvs, calico.KV{Key: k, Value: []byte(`{"spec":{}}`)})
		}
		return event.Change{Ref: ref(name), Keys: kvs}
	}
	const resource = "/calico/resources/v3/projectcalico.org/"
	a := script{[]event.Event{
		&event.SyncStatus{Source: "a", Status: event.ResyncInProgress},
		&event.Update{Source: "a", Changes: []event.Change{
			put("1", resource+"nodes/n1", "/calico/v1/host/n1/bird_ip"), put("2", resource+"bgppeers/p"), put("3", tieredKey),
			put("4", resource+"nodes/n4"),
			{Ref: ref("5"), Err: errors.New("refused")},
		}},
		&event.Update{Source: "a", Changes: []event.Change{
			put("1", resource+"nodes/n1"),
			{Ref: ref("4")},
			put("2"), put("6", resource+"nodes/n6"),
			{Ref: ref("6"), Err: errors.New("does not parse any more")},
		}},
		&event.SyncStatus{Source: "a", Status: event.InSync},
		&event.SyncStatus{Source: "a", Status: event.WaitForReady, Err: errors.New("the API server is away")},
	}}
	b := script{[]event.Event{&event.SyncStatus{Source: "b", Status: event.InSync}}}
	h := &heard{}
	f := Feed{Objects: map[string]Source{"a": a, "b": b}, Syncers: wire.SyncerTypes(), Modern: true}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx, h.publish) }()
	sets := []string{"felixfalse", "felixtrue", "bgpfalse", "tunnel-ip-allocationfalse", "node-statusfalse"}
	waitFor(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, set := range sets {
			if st := h.status[set]; len(st) == 0 || st[len(st)-1] != wire.InSync {
				return false
			}
		}
		return true
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for set, want := range map[string][]string{
		"felixfalse":                {resource + "nodes/n1"},
		"felixtrue":                 {resource + "nodes/n1"},
		"bgpfalse":                  {resource + "nodes/n1"},
		"tunnel-ip-allocationfalse": {resource + "nodes/n1"},
		"node-statusfalse":          nil,
	} {
		if diff := cmp.Diff(want, slices.DeleteFunc(h.list(set, resource), func(k string) bool { return strings.Contains(k, "/profiles/") })); diff != "" {
			t.Errorf("%s (-want +published):\n%s", set, diff)
		}
	}
	if got := h.list("felixfalse", "/policy/prod"); !slices.Equal(got, []string{tieredKey}) {
		t.Errorf("older form of the policy: %q", got)
	}
	if got := h.list("felixtrue", "/prod/"); len(got) != 1 || strings.Contains(got[0], "/tier/") {
		t.Errorf("newer form of the policy: %q", got)
	}
	if got := h.list("felixfalse", "Ready"); len(got) != 1 {
		t.Error("the datastore is not said to be ready")
	}
	for _, set := range sets {
		if st := h.status[set]; !slices.IsSorted(st) || st[len(st)-1] != wire.InSync {
			t.Errorf("%s: statuses %v", set, st)
		}
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain")
}

// TestFormsOfPolicies: the feed publishes both forms, whichever the source has, and deletes a policy's old key.
func TestFormsOfPolicies(t *testing.T) {
	h := &heard{}
	f := &Feed{Syncers: []wire.SyncerType{wire.Felix}, Modern: true}
	x := &forms{Feed: f, sink: h.publish, status: map[wire.SyncerType]wire.Status{}, tiered: map[string]string{}}
	x.Logger = slog.New(slog.DiscardHandler)
	policy := func(tier string) []byte {
		return []byte(fmt.Sprintf(`{"namespace":"prod","tier":%q,"selector":"app == \"web\"","types":["ingress"]}`, tier))
	}
	const modern = "/calico/v1/policy/NetworkPolicy/prod/sec.web"
	check := func(what string, older, newer []string) {
		t.Helper()
		if diff := cmp.Diff(map[string][]string{"older": older, "newer": newer}, map[string][]string{
			"older": h.list("felixfalse", "/policy/"), "newer": h.list("felixtrue", "/policy/"),
		}); diff != "" {
			t.Errorf("%s (-want +published):\n%s", what, diff)
		}
	}
	take := func(kvs ...wire.KV) { x.publishSet(wire.Felix, wire.InSync, kvs) }
	take(wire.KV{Key: modern, Value: policy("sec")})
	check("newer", []string{movedKey}, []string{modern})
	take(wire.KV{Key: modern, Value: policy("default")})
	if older := h.list("felixfalse", "/policy/"); len(older) != 1 || !strings.Contains(older[0], "/tier/default/") {
		t.Errorf("moved to another tier: %q", older)
	}
	take(wire.KV{Key: modern})
	check("deleted", nil, nil)
	take(wire.KV{Key: modern, Value: policy("sec")}, wire.KV{Key: modern, Value: []byte("{")})
	check("not understood", nil, []string{modern})
	take(wire.KV{Key: modern})
	take(wire.KV{Key: movedKey, Value: policy("")})
	check("older", []string{movedKey}, []string{modern})
	take(wire.KV{Key: movedKey})
	check("older, deleted", nil, nil)
}

func TestFanoutOfLines(t *testing.T) {
	for _, c := range []struct {
		name, in, err string
		want          map[string]string
	}{
		{name: "text, JSON and deletes", in: `
			{"key":"/a","value":"1","revision":"3"}
			{"key":"/b","value":{"x":[1]}}
			{"key":"/c","value":"1"}
			{"key":"/c","deleted":true}
			{"key":"/d","value":"1","syncer":"bgp"}
			{"status":"in-sync"}`, want: map[string]string{"/a": "1", "/b": `{"x":[1]}`}},
		{name: "no JSON", in: "{\"status\":\"resync\"}\nx", err: "line 2: invalid character"},
		{name: "neither", in: `{"key":"/a"}`, err: `line 1: must have "key" and either`},
		{name: "both", in: `{"key":"/a","value":"1","deleted":true}`, err: "line 1: must have"},
		{name: "unknown status", in: `{"status":"fine"}`, err: "line 1: must have"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &heard{}
			f := Feed{Lines: strings.NewReader(c.in), Syncers: []wire.SyncerType{wire.Felix, wire.BGP}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx, h.publish) }()
			if c.err != "" {
				if err := <-ended; err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			waitFor(t, func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return slices.Contains(h.status["bgpfalse"], wire.InSync) && slices.Contains(h.status["felixfalse"], wire.InSync)
			})
			if diff := cmp.Diff(c.want, h.keys["felixfalse"]); diff != "" {
				t.Errorf("(-want +published):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"/d": "1"}, h.keys["bgpfalse"]); diff != "" {
				t.Errorf("bgp (-want +published):\n%s", diff)
			}
		})
	}
}

// TestTiersOfFanouts: a server that follows a server that follows manifests serves the same keys, in both forms.
func TestTiersOfFanouts(t *testing.T) {
	tier := func(f Feed) string {
		f.Syncers, f.Modern = wire.SyncerTypes(), true
		s, err := fanout.New(fanout.Config{Syncers: f.Syncers, Modern: []wire.SyncerType{wire.Felix}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- f.Run(ctx, s.Publish) }()
		go func() { ended <- s.Serve(ctx, l) }()
		t.Cleanup(func() {
			cancel()
			for range 2 {
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
		return l.Addr().String()
	}
	follow := func(addr string, older bool) map[string]string {
		h := &heard{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- typha.NewClient(typha.Config{Addrs: []string{addr}, PauseFrom: time.Millisecond}, wire.Felix, older).Follow(ctx, h.publish, func(error) {})
		}()
		waitFor(t, func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.Contains(h.status["felixfalse"], wire.InSync) && len(h.keys["felixfalse"]) > 0
		})
		cancel()
		<-ended
		return h.keys["felixfalse"]
	}
	first := tier(Feed{Objects: map[string]Source{
		"manifest": manifest.New(manifest.Config{Paths: []string{"../../examples/guestbook"}, Keys: true}),
	}})
	second := tier(Feed{Upstream: &typha.Config{Addrs: []string{first}}})
	third := tier(Feed{Upstream: &typha.Config{Addrs: []string{second}}})
	for _, older := range []bool{true, false} {
		want := follow(first, older)
		if len(want) < 20 {
			t.Errorf("the guestbook has %d keys only", len(want))
		}
		if diff := cmp.Diff(want, follow(third, older)); diff != "" {
			t.Errorf("older keys %v (-first tier +third):\n%s", older, diff)
		}
	}
}
