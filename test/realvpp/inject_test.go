package realvpp

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/query"
)

// injectPolicy lets clients open connections of TCP and UDP to port 8080 alone.
const injectPolicy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: client, namespace: default}
spec:
  podSelector: {matchLabels: {app: client}}
  policyTypes: [Egress]
  egress: [{ports: [{port: 8080, protocol: TCP}, {port: 8080, protocol: UDP}]}]
`

// TestVPPTraceInject: the agent lets a pod send one packet, and its path through VPP is the one that the agent's own objects predict: to a Service by NAT44
// and by cnat, in both families, and where a policy denies. It sends from the given port, and names the sessions that remain. No socket remains in the pod.
func TestVPPTraceInject(t *testing.T) {
	path := realVPP(t, "it has no packet tracer")
	c := newPodCluster(t, clusterShape{})
	n := c.addNode(path, 1)
	c.until("STATUS", func() error { return n.client().Status(t.Context()) })
	web, db := c.attach(n, "web", "client"), c.attach(n, "db", "server")
	c.dualService("db", 20, "", db)
	c.write("policy.yaml", injectPolicy)
	before := sockets(t, web)
	const denied = "denied: NetworkPolicy default/client isolates default/web for egress and no rule allows it"
	for i, q := range []struct {
		to, protocol string
		both         []string // on both sides
		left         string   // "": nothing is left
	}{
		{"default/db:80", "TCP", []string{"to pod-default/db"}, "a session of nat44, TCP 10.1.1."},
		{fmt.Sprintf("[%s]:80", serviceAddr(20, true)), "TCP", []string{"to pod-default/db"}, "a session of cnat, TCP [2001:db8:1:"},
		{"default/db:80", "UDP", []string{"to pod-default/db"}, "a session of nat44, UDP 10.1.1."},
		{hostPort(db.addr(true), 8080), "UDP", []string{"to pod-default/db"}, "a session of the access lists of pod-default/web, input"},
		{"pod:default/db:9", "TCP", []string{denied}, ""},
		{"pod:default/db", "ICMP", []string{denied}, ""},
		{db.addr(true).String(), "ICMP", []string{denied}, ""},
	} {
		port := 45000 + i
		c.until(q.to+" "+q.protocol, func() error {
			port += 100
			text, code := inject(t, n, port, q.to, q.protocol)
			switch {
			case code != exit.OK || strings.Contains(text, "!="):
				return fmt.Errorf("exit code %d\n%s", code, text)
			case q.protocol != "ICMP" && strings.Count(text, fmt.Sprintf(":%d -> ", port)) < 2:
				return fmt.Errorf("it is not sent from port %d\n%s", port, text)
			case strings.Contains(text, "left in VPP") != (q.left != "") || !strings.Contains(text, q.left):
				return fmt.Errorf("left in VPP: want %q\n%s", q.left, text)
			}
			for _, want := range q.both {
				if strings.Count(text, want) < 2 {
					return fmt.Errorf("no %q on both sides\n%s", want, text)
				}
			}
			t.Log(text)
			return nil
		})
	}
	if after := sockets(t, web); after != before {
		t.Errorf("sockets in the pod's namespace:\n%s\nbefore:\n%s", after, before)
	}
	if text, code := inject(t, n, 0, "default/db:80", "TCP"); code != exit.OK {
		t.Errorf("without a port: exit code %d\n%s", code, text)
	}
}

// inject runs the command, and returns its text and exit code.
func inject(t *testing.T, n *podNode, port int, to, protocol string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := query.NewTrace()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--live", "--inject", "--source-port", fmt.Sprint(port), "--status-socket", n.status(), "default/web", to, protocol})
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	return exitOf(&out, cmd.ExecuteContext(t.Context()))
}

// sockets are the sockets in a pod's namespace.
func sockets(t *testing.T, p *podOf) (text string) {
	t.Helper()
	p.do(func() {
		for _, kind := range []string{"raw", "raw6", "tcp", "tcp6", "udp", "udp6"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + kind)
			if err != nil {
				t.Error(err)
			}
			text += string(b)
		}
	})
	return text
}
