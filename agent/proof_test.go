package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/proof"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/visit"
)

const closing = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: default}
spec: {podSelector: {}, policyTypes: [Ingress]}
`

// detach removes all access lists from the interface of a pod, as another program might.
func (w *world) detach(pod string) {
	w.t.Helper()
	conn, stop, err := visit.Open(w.t.Context(), vpp.Config{Dial: w.vpp.Dial, ClientName: "other"})
	if err != nil {
		w.t.Fatal(err)
	}
	defer stop()
	all := interface_types.InterfaceIndex(^uint32(0))
	for _, m := range conn.Do(w.t.Context(), vpp.Call{Dump: true, Msg: &interfaces.SwInterfaceDump{SwIfIndex: all}})[0].Details {
		if d, is := m.(*interfaces.SwInterfaceDetails); is && d.InterfaceName == pod {
			if r := conn.Do(w.t.Context(), vpp.Call{Msg: &acl.ACLInterfaceSetACLList{SwIfIndex: d.SwIfIndex}}); r[0].Err != nil {
				w.t.Fatal(r[0].Err)
			}
			return
		}
	}
	w.t.Fatalf("no interface %s", pod)
}

// A running agent proves over its socket that VPP does what its own objects mean. It finds what another program changed, and says so in its status.
func TestAgentProvesItself(t *testing.T) {
	w := start(t, nil, endpoints, closing)
	w.settled()
	socket := w.agent.cfg.Listen.Status
	report := func() *verify.Report {
		t.Helper()
		r, err := control.FetchReport(t.Context(), socket)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := report()
	if r.Verdict != verify.Equal || r.Node != "node-1" || len(r.Checks) < 5 || len(r.Services) == 0 {
		t.Fatalf("a correct VPP: %+v", r)
	}
	w.detach("pod-default/web")
	r = report()
	at := slices.IndexFunc(r.Checks, func(c verify.Check) bool { return c.Pod == "default/web" && c.Packets == "ingress" })
	if r.Verdict != verify.Different || at < 0 || r.Checks[at].Difference == nil || !strings.Contains(r.Checks[at].Difference.Policy, "NetworkPolicy default/closed") {
		t.Errorf("without access lists: %+v", r)
	}
	st, err := w.agent.Status(t.Context())
	if err != nil || st.VPP.Proof == nil || st.VPP.Proof.Verdict != verify.Different || !strings.Contains(st.VPP.Proof.Example, "default/web, ingress: ") {
		t.Errorf("status %+v, %v", st, err)
	}
	if !st.Healthy {
		t.Errorf("the result of a request makes the agent unhealthy: %+v", st.Problems)
	}
	if text := `msg="verify: different" object="default/web, ingress"`; !strings.Contains(w.log.String(), text) {
		t.Errorf("the log has no line with %s:\n%s", text, w.log)
	}
	if _, err := w.agent.Recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r = report(); r.Verdict != verify.Equal {
		t.Errorf("after the repair: %+v", r)
	}
}

// A policy that the agent refuses for its size counts as one that denies all that it applies to, and the report names it.
func TestProofOfRefusedPolicies(t *testing.T) {
	const wide = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: wide, namespace: default}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/25}}, {ipBlock: {cidr: 198.51.100.0/25}}, {ipBlock: {cidr: 192.0.2.0/25}}]}]
`
	w := start(t, func(c *Config) { c.Limits[budget.Rules].Object = 2 }, endpoints, wide)
	w.settled()
	r, err := control.FetchReport(t.Context(), w.agent.cfg.Listen.Status)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != verify.Equal || len(r.Refused) != 1 || !strings.HasPrefix(r.Refused[0], "NetworkPolicy default/wide: it asks for ") {
		t.Errorf("%+v", r)
	}
}

// An agent that proves in a period is not healthy while VPP differs.
func TestPeriodicProof(t *testing.T) {
	l := newListening()
	w := start(t, func(c *Config) { c.Process.VerifyEvery, c.Reporter = 10*time.Millisecond, l }, endpoints, closing)
	w.settled()
	until := func(what string, fits func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !fits(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not %s: %v; log:\n%s", what, w.agent.reader.Proof.Last(), w.log)
			}
		}
	}
	verdict := func(v verify.Verdict) func() bool {
		return func() bool { p := w.agent.reader.Proof.Last(); return p != nil && p.Verdict == v }
	}
	until("equal", verdict(verify.Equal))
	w.detach("pod-default/web")
	until("different", verdict(verify.Different))
	st, err := w.agent.Status(t.Context())
	if err != nil || st.Healthy || !st.Ready || len(st.Problems) != 1 || !strings.HasPrefix(st.Problems[0].String(), "VPP is PARTIAL: verify: different: default/web, ") {
		t.Errorf("status %+v, %v", st, err)
	}
	w.report(l, func(rep *event.Report) bool { return slices.Contains(short(rep), "Node node-1 VPPDiffers") })
	if _, err := w.agent.Recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.report(l, func(rep *event.Report) bool { return !slices.Contains(short(rep), "Node node-1 VPPDiffers") })
}

// An agent that is not in sync gives no verdict about VPP.
func TestNoProofBeforeTheFirstSync(t *testing.T) {
	w := start(t, func(c *Config) { c.Sources["other"] = Fed{} })
	look := proof.Loop{Controller: w.agent.controller, Settings: w.agent.cfg.Proof, Waiting: status.Waiting, Writes: func() uint64 { return 7 }}
	m, err := look.Look(t.Context(), func() {})
	if err != nil || !strings.HasPrefix(m.Busy, "the agent is not in sync: ") || !strings.Contains(m.Busy, "source other is wait-for-ready") || m.Mark.Writes != 7 {
		t.Errorf("%+v, %v", m, err)
	}
}
