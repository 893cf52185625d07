package agent

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/test/poll"
)

// listening is a Reporter that records the agent's reports.
type listening struct {
	changes func() uint64
	ask     func(context.Context) (*event.Report, error)
	ready   chan struct{}
	ended   chan struct{}
}

func newListening() *listening {
	return &listening{ready: make(chan struct{}), ended: make(chan struct{})}
}

// Run implements Reporter.
func (l *listening) Run(ctx context.Context, changes func() uint64, ask func(context.Context) (*event.Report, error)) error {
	l.changes, l.ask = changes, ask
	close(l.ready)
	<-ctx.Done()
	close(l.ended)
	return ctx.Err()
}

const troubles = `
apiVersion: v1
kind: Service
metadata: {name: phones, namespace: default}
spec: {clusterIP: 10.96.0.12, clusterIPs: [10.96.0.12], ports: [{name: sip, port: 5060}, {name: media, port: 5004, protocol: SCTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: nonsense, namespace: default}
spec: {clusterIP: 10.96.0.300, clusterIPs: [10.96.0.300], ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: others, namespace: default, labels: {service.kubernetes.io/service-proxy-name: other}}
spec: {clusterIP: 10.96.0.13, clusterIPs: [10.96.0.13], ports: [{port: 80, protocol: SCTP}]}
`

// remarked are two Services with remarks: one has only a remark, the other also a refused port.
const remarked = `
apiVersion: v1
kind: Service
metadata: {name: silent, namespace: default}
spec: {clusterIP: 10.96.0.14, clusterIPs: [10.96.0.14], internalTrafficPolicy: Local, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: both, namespace: default}
spec: {clusterIP: 10.96.0.15, clusterIPs: [10.96.0.15], internalTrafficPolicy: Local, ports: [{name: http, port: 80}, {name: media, port: 5004, protocol: SCTP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: silent-1, namespace: default, labels: {kubernetes.io/service-name: silent}}
addressType: IPv4
ports: [{port: 8080, name: http, protocol: TCP}]
endpoints: [{addresses: [10.1.2.2], nodeName: node-2}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: both-1, namespace: default, labels: {kubernetes.io/service-name: both}}
addressType: IPv4
ports: [{port: 8080, name: http, protocol: TCP}]
endpoints: [{addresses: [10.1.2.2], nodeName: node-2}]
`

// report waits for that many problems, and returns "object reason" of each.
func (w *world) report(l *listening, done func(*event.Report) bool) *event.Report {
	w.t.Helper()
	<-l.ready
	var rep *event.Report
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var err error
		if rep, err = l.ask(w.t.Context()); err == nil && done(rep) {
			return rep
		}
	}
	w.t.Fatalf("it says %+v; log:\n%s", rep, w.log)
	return nil
}

func short(rep *event.Report) (out []string) {
	for _, p := range rep.Problems {
		out = append(out, p.Ref.String()+" "+string(p.Reason))
	}
	return out
}

// expectReport waits until a ready agent reports exactly these problems, "object reason" in order.
func (w *world) expectReport(l *listening, want ...string) *event.Report {
	w.t.Helper()
	return w.report(l, func(rep *event.Report) bool { return rep.Ready && slices.Equal(short(rep), want) })
}

// The report has the problems of the status, and omits repaired ones.
func TestReport(t *testing.T) {
	l := newListening()
	var away atomic.Bool // VPP: it does not come back at once
	w := start(t, func(c *Config) {
		dial := c.VPP.Dial
		c.VPP.Dial = func(ctx context.Context) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("away")
			}
			return dial(ctx)
		}
		c.Reporter = l
	}, troubles, policies)
	w.wait("first sync", firstSync)
	w.settled()
	rep := w.expectReport(l, "NetworkPolicy default/odd NotUnderstood", "Service default/nonsense NotUnderstood", "Service default/phones NotSupported")
	st, err := w.agent.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, r := range st.Refused {
		shown = append(shown, r.Error)
	}
	for _, s := range st.Services {
		shown = append(shown, s.Reasons...)
	}
	for _, p := range st.Policies {
		shown = append(shown, p.Reasons...)
	}
	for _, p := range rep.Problems {
		if !slices.Contains(shown, p.Text) {
			t.Errorf("%s: status does not show %q", p.Ref, p.Text)
		}
	}
	before := l.changes()
	w.write("objects.yaml", objects)
	w.report(l, func(rep *event.Report) bool { return rep.Ready && len(rep.Problems) == 0 })
	poll.Until(t, "a change that is counted, which may be after the loop has it", func() bool { return l.changes() != before })
	away.Store(true)
	w.vpp.Close()
	if rep := w.report(l, func(rep *event.Report) bool { return !rep.Ready }); rep.Waiting == "" {
		t.Errorf("%+v", rep)
	}
	if err := w.stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-l.ended
}

// The report has no remarks: their objects are served as they ask. A policy's report says that it fails closed, and the
// others' reports do not.
func TestReportHasOnlyRefusals(t *testing.T) {
	const silent = "cluster IPs are silent on this node"
	l := newListening()
	w := start(t, func(c *Config) { c.Reporter = l }, troubles, remarked, policies)
	w.wait("first sync", firstSync)
	w.settled()
	rep := w.expectReport(l, "NetworkPolicy default/odd NotUnderstood", "Service default/both NotSupported", "Service default/nonsense NotUnderstood", "Service default/phones NotSupported")
	for _, p := range rep.Problems {
		if strings.Contains(p.Text, silent) {
			t.Errorf("a remark: %+v", p)
		}
		if closed := strings.HasPrefix(p.Text, "what was not understood fails closed: "); closed != policy.IsPolicy(p.Ref.Kind) {
			t.Errorf("fails closed: %v: %+v", closed, p)
		}
	}
	st, err := w.agent.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range st.Services {
		is := slices.ContainsFunc(s.Reasons, func(r string) bool { return strings.HasPrefix(r, silent) })
		if want := s.Name == "default/silent" || s.Name == "default/both"; is != want {
			t.Errorf("%s: remark %v, %q", s.Name, is, s.Reasons)
		}
	}
}

// A refusal by VPP is reported on the Service, with VPP's error.
func TestReportOfWhatVPPRefuses(t *testing.T) {
	l := newListening()
	w := start(t, func(c *Config) { c.Reporter = l })
	w.wait("first sync", firstSync)
	w.vpp.Fail(func(name string) (int32, bool) {
		if strings.Contains(name, "static_mapping") {
			return -81, false
		}
		return 0, false
	})
	w.write("slice.yaml", endpoints)
	rep := w.report(l, func(rep *event.Report) bool { return rep.Ready && len(rep.Problems) > 0 })
	for _, p := range rep.Problems {
		if p.Reason != event.NotProgrammed || p.Ref.Name != "web" || !strings.Contains(p.Text, "-81") {
			t.Errorf("%+v", p)
		}
	}
	w.vpp.Fail(nil)
	w.report(l, func(rep *event.Report) bool { return rep.Ready && len(rep.Problems) == 0 })
}

// An agent that does not serve Services, or does not enforce policies, does not report on them.
func TestReportOfOthers(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		about  func(model.Kind) bool
		want   int
	}{
		{func(c *Config) { c.Services.Off, c.Policies.Off = true, true }, func(model.Kind) bool { return false }, 0},
		{func(c *Config) { c.Policies.Off = true }, func(k model.Kind) bool { return k == model.KindService }, 2},
	} {
		l := newListening()
		w := start(t, func(cfg *Config) {
			cfg.Reporter = l
			c.change(cfg)
		}, troubles, policies)
		w.wait("first sync", firstSync)
		rep := w.report(l, func(rep *event.Report) bool { return rep.Ready && len(rep.Problems) >= c.want })
		for _, p := range rep.Problems {
			if !c.about(p.Ref.Kind) {
				t.Errorf("%+v", p)
			}
		}
	}
}
