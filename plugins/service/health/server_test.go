package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/renderer/adapter"
	"github.com/contiv-agent/contiv-agent/test/poll"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// host is a network stack whose every address and port is some port of the loopback.
type host struct {
	mu   sync.Mutex
	open map[string]net.Listener
	bad  map[string]error
}

type closing struct {
	net.Listener
	gone func()
}

func (c closing) Close() error { c.gone(); return c.Listener.Close() }

func (h *host) listen(_ context.Context, address string) (net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.bad[address]; err != nil {
		return nil, err
	}
	if h.open[address] != nil {
		return nil, errors.New("address already in use")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h.open[address] = l
	return closing{l, func() { h.mu.Lock(); delete(h.open, address); h.mu.Unlock() }}, nil
}

func (h *host) places() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.open))
}

func (h *host) refuse(address string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad[address] = err
}

// get sends a request to a place of the host and returns status code, relevant headers, and body.
func (h *host) get(t *testing.T, address string) string {
	t.Helper()
	h.mu.Lock()
	l := h.open[address]
	h.mu.Unlock()
	if l == nil {
		return "closed"
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s %s weight=%s\n%s", resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("X-Content-Type-Options"),
		resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), text)
}

// start runs a server on a host.
func start(t *testing.T, cfg Config) (*Server, *host) {
	t.Helper()
	h := &host{open: map[string]net.Listener{}, bad: map[string]error{}}
	cfg.Listen = h.listen
	s := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left := h.places(); len(left) > 0 {
			t.Errorf("still open after the end: %v", left)
		}
	})
	return s, h
}

func (h *host) opens(t *testing.T, places ...string) {
	t.Helper()
	poll.Until(t, fmt.Sprint(places, " open"), func() bool { return slices.Equal(h.places(), places) })
}

func service1(name string, port uint16, local int) *renderer.ContivService {
	svc := renderer.NewContivService()
	svc.ID = model.ServiceID{Namespace: "shop", Name: name}
	svc.HealthCheck = renderer.HealthCheck{NodePort: port, Local4: local, Local6: 7}
	return svc
}

// The answers equal kube-proxy's byte for byte.
func TestAnswers(t *testing.T) {
	var healthy atomic.Bool
	s, h := start(t, Config{Healthy: func(context.Context) bool { return healthy.Load() }})
	healthy.Store(true)
	s.ServiceChanged(nil, service1("web", 30201, 2))
	h.opens(t, ":30201")
	want := "200 application/json nosniff weight=2\n" +
		"{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}"
	if got := h.get(t, ":30201"); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	healthy.Store(false)
	if got := h.get(t, ":30201"); !strings.HasPrefix(got, "503 application/json nosniff weight=2\n") || !strings.Contains(got, `"serviceProxyHealthy": false`) {
		t.Errorf("unwell: %s", got)
	}
	healthy.Store(true)
	s.ServiceChanged(nil, service1("web", 30201, 0))
	if got := h.get(t, ":30201"); !strings.HasPrefix(got, "503 application/json nosniff weight=0\n") || !strings.Contains(got, `"localEndpoints": 0`) {
		t.Errorf("no endpoint: %s", got)
	}
}

func TestPortsComeAndGo(t *testing.T) {
	s, h := start(t, Config{})
	api := adapter.Listen(s)
	_ = api.AddService(service1("web", 30201, 1))
	_ = api.AddService(service1("plain", 0, 1))
	h.opens(t, ":30201")
	_ = api.AddService(service1("web", 30202, 1))
	h.opens(t, ":30202")
	_ = api.AddService(service1("api", 30203, 1))
	h.opens(t, ":30202", ":30203")
	_ = api.DeleteService(service1("web", 30202, 1), nil)
	h.opens(t, ":30203")
	_ = api.Resync(&renderer.ResyncEventData{Services: []*renderer.ContivService{service1("web", 30204, 1)}})
	h.opens(t, ":30204")
	_ = api.AddService(service1("web", 0, 0))
	h.opens(t)
}

// Of two services that ask for one port the first by name has it. The other one gets it when the first is deleted, and the port
// stays open.
func TestTwoServicesOnePort(t *testing.T) {
	s, h := start(t, Config{})
	s.ServiceChanged(nil, service1("b", 30201, 1))
	h.opens(t, ":30201")
	s.ServiceChanged(nil, service1("a", 30201, 0))
	if got := h.get(t, ":30201"); !strings.Contains(got, `"name": "a"`) {
		t.Errorf("with both: %s", got)
	}
	b := model.ServiceID{Namespace: "shop", Name: "b"}
	want := map[model.ServiceID][]string{b: {"health checks at port 30201 are answered for Service shop/a: it asks for the same port"}}
	if diff := cmp.Diff(want, s.Problems()); diff != "" {
		t.Errorf("problems -want +got\n%s", diff)
	}
	s.ServiceChanged(service1("a", 30201, 0), nil)
	if got := h.get(t, ":30201"); !strings.Contains(got, `"name": "b"`) || len(s.Problems()) > 0 {
		t.Errorf("b alone: %s, problems %v", got, s.Problems())
	}
}

// A place that cannot be opened is reported and retried.
func TestPortInUse(t *testing.T) {
	s, h := start(t, Config{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}})
	h.refuse("192.0.2.1:30201", errors.New("taken"))
	s.ServiceChanged(nil, service1("web", 30201, 1))
	web := model.ServiceID{Namespace: "shop", Name: "web"}
	poll.Until(t, "a problem", func() bool { return len(s.Problems()) > 0 })
	h.opens(t, "[2001:db8::1]:30201") // one place does not keep the other closed
	if diff := cmp.Diff(map[model.ServiceID][]string{web: {"health checks at port 30201 are not answered: taken"}}, s.Problems()); diff != "" {
		t.Errorf("problems -want +got\n%s", diff)
	}
	h.refuse("192.0.2.1:30201", nil)
	h.opens(t, "192.0.2.1:30201", "[2001:db8::1]:30201")
	poll.Until(t, "no problem", func() bool { return len(s.Problems()) == 0 })
}

// Without configured addresses the server uses the node's, where not all of them have node ports.
func TestFollowsNodePortAddresses(t *testing.T) {
	s, h := start(t, Config{})
	s.ServiceChanged(nil, service1("web", 30201, 1))
	h.opens(t, ":30201")
	node := renderer.NodeState{IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")}}
	node.NoNodePorts = node.IPs[1:]
	_ = s.UpdateNode(node)
	h.opens(t, "192.0.2.1:30201")
	node.NoNodePorts = nil
	_ = s.UpdateNode(node)
	h.opens(t, ":30201")
}

// Each family has separate endpoints.
func TestFamilies(t *testing.T) {
	check := renderer.HealthCheck{NodePort: 1, Local4: 4, Local6: 6}
	for at, want := range map[string]int{"192.0.2.1": 4, "2001:db8::1": 6, "::ffff:192.0.2.1": 4} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(at), Port: 1})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := local(check, req); got != want {
			t.Errorf("asked at %s: %d endpoints, want %d", at, got, want)
		}
	}
}
