package realvpp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/prover"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// probePolicies isolate default/db, and what default/web may send.
const probePolicies = injectPolicy + `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: default}
spec:
  podSelector: {matchLabels: {app: server}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 8080, protocol: TCP}]}]
`

// TestVPPProbe: pods of a node send a packet of each class, to each other, to a pod of another node and to addresses outside, and VPP does with each what policies say. Then VPP does not look up
// the lists of an interface any more. No dump shows that, and the packets do.
func TestVPPProbe(t *testing.T) {
	path := realVPP(t, "it has no packet tracer")
	c := newPodCluster(t, clusterShape{flags: []string{"--recheck", "0"}}) // the agent would set the lists again
	n, other := c.addNode(path, 1), c.addNode(path, 2)
	for _, n := range []*podNode{n, other} {
		c.until("STATUS", func() error { return n.client().Status(t.Context()) })
	}
	c.attach(n, "web", "client")
	c.attach(n, "db", "server")
	c.attach(n, "free", "free")
	c.attach(other, "far", "client")
	c.write("policy.yaml", probePolicies)
	interfaces := map[string]string{} // in VPP
	c.until("packets of all classes", func() error {
		r, text, code := probeAll(t, n)
		if code != exit.OK || len(r.Probes) != 3 || r.PacketsSent < 45 {
			return fmt.Errorf("exit code %d, %d pods, %d packets\n%s", code, len(r.Probes), r.PacketsSent, text)
		}
		t.Logf("%d packets", r.PacketsSent)
		for _, k := range r.Probes {
			interfaces[k.Pod] = k.Interface
		}
		return nil
	})
	conn := plain(vpp.Config{Socket: n.socket()})
	defer conn.close()
	c.check(conn.wait())
	for _, version := range []string{"4", "6"} { // of IP
		feature := func(what string) {
			cmd := fmt.Sprintf("set interface feature %s acl-plugin-out-ip%s-fa arc ip%s-output %s", interfaces["default/db"], version, version, what)
			if r := conn.conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: strings.TrimSpace(cmd)}})[0]; r.Err != nil {
				t.Fatalf("%s: %v: %+v", cmd, r.Err, r.Msg)
			}
		}
		feature("disable")
		r, text, code := probeAll(t, n)
		if code != exit.Differs || !strings.Contains(text, "its lists say otherwise when they are read") || !strings.Contains(text, "ingress of default/db: denied") {
			t.Errorf("IPv%s: exit code %d\n%s", version, code, text)
		}
		for _, k := range r.Checks {
			if k.Verdict != verify.Equal {
				t.Errorf("IPv%s: dumps show it: %+v", version, k)
			}
		}
		feature("")
	}
	if _, text, code := probeAll(t, n); code != exit.OK {
		t.Errorf("at the end: exit code %d\n%s", code, text)
	}
}

// probeAll runs the command in both forms of output.
func probeAll(t *testing.T, n *podNode) (r verify.Report, text string, code int) {
	t.Helper()
	run := func(more ...string) string {
		var out bytes.Buffer
		cmd := prover.New()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"--probe", "5m", "--vpp-socket", n.socket(), "--status-socket", n.status()}, more...))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		text, code = exitOf(&out, cmd.ExecuteContext(t.Context()))
		return text
	}
	if err := json.Unmarshal([]byte(run("-o", "json")), &r); err != nil {
		t.Log(err)
	}
	if code != exit.OK {
		run()
	}
	return r, text, code
}
