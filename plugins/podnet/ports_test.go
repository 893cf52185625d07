package podnet

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

func port(host uint16, proto, ip string) protocol.PortMapping {
	m := protocol.PortMapping{HostPort: host, ContainerPort: 8080, Protocol: proto}
	if ip != "" {
		m.HostIP = netip.MustParseAddr(ip)
	}
	return m
}

func (w *world) portKeys() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.values {
		if name, is := strings.CutPrefix(key, "config/contiv/linux/v1/host-port/"); is {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// TestHostPorts: a host port is the pod's until the pod is deleted; ADD waits for it, a restart keeps it, and no other pod gets it.
func TestHostPorts(t *testing.T) {
	w := newWorld(t)
	w.nodes()
	w.put(pod("web"), pod("other"))
	r := request("c1", "web")
	r.PortMappings = []protocol.PortMapping{port(80, "TCP", ""), port(53, "UDP", "192.168.16.1")}
	w.hold(func(k string) bool { return strings.Contains(k, "host-port/TCP/::/80") })
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	if _, err := w.net.Add(ctx, r); err == nil || !strings.Contains(err.Error(), "host-port/TCP/::/80") {
		t.Errorf("ADD does not wait for a host port: %v", err)
	}
	w.hold(nil)
	w.acknowledge("config/contiv/linux/v1/host-port/TCP/::/80")
	w.add(r)
	want := []string{"TCP/0.0.0.0/80", "TCP/::/80", "UDP/192.168.16.1/53"}
	if got := w.portKeys(); !slices.Equal(got, want) {
		t.Errorf("host ports %q, want %q", got, want)
	}
	w.stop()
	w.start()
	w.nodes()
	w.put(pod("web"), pod("other"))
	if got := w.portKeys(); !slices.Equal(got, want) {
		t.Errorf("after a restart: host ports %q, want %q", got, want)
	}
	other := request("c2", "other")
	other.PortMappings = []protocol.PortMapping{port(80, "TCP", "192.168.16.1")}
	if _, err := w.net.Add(t.Context(), other); code(err) != protocol.CodeTryAgainLater || !strings.Contains(err.Error(), "host port 192.168.16.1:80/TCP: pod default/web has it") {
		t.Errorf("a host port in use: %v", err)
	}
	if err := w.net.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	w.add(other)
	if got := w.portKeys(); !slices.Equal(got, []string{"TCP/192.168.16.1/80"}) {
		t.Errorf("after DEL: host ports %q", got)
	}
	twice := request("c3", "web")
	twice.PortMappings = []protocol.PortMapping{port(90, "TCP", ""), port(90, "TCP", "::1")}
	if _, err := w.net.Add(t.Context(), twice); code(err) != protocol.CodeInvalidConfig || !strings.Contains(err.Error(), "portMappings[1]: host port [::1]:90/TCP twice") {
		t.Errorf("a host port twice: %v", err)
	}
}

func TestCollide(t *testing.T) {
	for _, tc := range []struct {
		a, b protocol.PortMapping
		want bool
	}{
		{port(80, "TCP", ""), port(80, "TCP", ""), true},
		{port(80, "TCP", ""), port(81, "TCP", ""), false},
		{port(80, "TCP", ""), port(80, "UDP", ""), false},
		{port(80, "TCP", "192.0.2.1"), port(80, "TCP", "192.0.2.2"), false},
		{port(80, "TCP", "192.0.2.1"), port(80, "TCP", "::ffff:192.0.2.1"), true},
		{port(80, "TCP", "0.0.0.0"), port(80, "TCP", "192.0.2.2"), true},
		{port(80, "TCP", "0.0.0.0"), port(80, "TCP", "::"), false},
		{port(80, "TCP", "::"), port(80, "TCP", "192.0.2.2"), false},
		{port(80, "TCP", "::"), port(80, "TCP", "2001:db8::1"), true},
		{port(80, "TCP", ""), port(80, "TCP", "::"), true},
	} {
		if got := [2]bool{collide(tc.a, tc.b), collide(tc.b, tc.a)}; got != [2]bool{tc.want, tc.want} {
			t.Errorf("%s and %s: %v, want %t", portText(tc.a), portText(tc.b), got, tc.want)
		}
	}
}
