package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
)

const balanced = `
apiVersion: v1
kind: Service
metadata: {name: lb, namespace: default}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: %d
  clusterIP: 10.96.0.11
  clusterIPs: [10.96.0.11]
  ports: [{port: 80}]
`

// health waits for a state of the balanced Service and for the answer of a health check, and returns the Service's status.
func (w *world) health(address, state, answer string) (found status.Service) {
	w.t.Helper()
	var got string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		st, err := w.agent.Status(w.t.Context())
		if err != nil || len(st.Services) != 2 {
			continue
		}
		if found = st.Services[0]; found.State != state {
			continue
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + address)
		if err != nil {
			got = "none"
		} else {
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got = fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), strings.Join(strings.Fields(string(text)), ""))
		}
		if strings.HasPrefix(got, answer) {
			return found
		}
	}
	w.t.Fatalf("status %+v, answer %s; want %s, %s; log:\n%s", found, got, state, answer, w.log)
	return found
}

// The Service's status reports an occupied port; when the port is free, the agent opens it and answers.
func TestHealthChecks(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	port := netip.MustParseAddrPort(address).Port()
	w := start(t, func(c *Config) {
		c.Services.Health = &health.Config{Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	}, fmt.Sprintf(balanced, port))
	w.wait("first sync", firstSync)
	go func() { // accepts and closes, like a server of another protocol
		for c, err := taken.Accept(); err == nil; c, err = taken.Accept() {
			_ = c.Close()
		}
	}()
	st := w.health(address, "RETRYING", "none")
	if got := strings.Join(st.Reasons, "\n"); !strings.Contains(got, fmt.Sprintf("health checks at port %d are not answered: ", port)) ||
		!strings.Contains(got, "address already in use") {
		t.Errorf("reasons %s", got)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	w.health(address, "CONFIGURED", `503 0 {"service":{"namespace":"default","name":"lb"},"localEndpoints":0,"serviceProxyHealthy":true}`)
	w.write("slice.yaml", strings.NewReplacer("web-1", "lb-1", "service-name: web", "service-name: lb").Replace(endpoints))
	w.health(address, "CONFIGURED", `200 1 {"service":{"namespace":"default","name":"lb"},"localEndpoints":1,"serviceProxyHealthy":true}`)
	w.vpp.Close()
	w.health(address, "CONFIGURED", `503 1 {"service":{"namespace":"default","name":"lb"},"localEndpoints":1,"serviceProxyHealthy":false}`)
}
