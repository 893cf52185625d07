package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// listening hears what an agent reports.
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

// report waits until there is that much to tell, and returns "object reason" of each.
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

// What is told is what status shows, without what is no fault; and what was repaired is told no more.
func TestReport(t *testing.T) {
	l := newListening()
	w := start(t, func(c *Config) { c.Reporter = l }, troubles, policies)
	w.wait("first sync", firstSync)
	rep := w.report(l, func(rep *event.Report) bool { return rep.Ready })
	want := []string{"NetworkPolicy default/odd NotUnderstood", "Service default/nonsense NotUnderstood", "Service default/phones NotSupported"}
	if diff := cmp.Diff(want, short(rep)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
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
	if l.changes() == before {
		t.Error("nothing has changed, it says")
	}
	w.vpp.Close()
	if rep := w.report(l, func(rep *event.Report) bool { return !rep.Ready }); rep.Waiting == "" {
		t.Errorf("%+v", rep)
	}
	if err := w.stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-l.ended
}

// What VPP refuses is told of the Service, with VPP's words.
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

// An agent that leaves Services or policies to others says nothing of them.
func TestReportOfOthers(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		about  func(model.Kind) bool
		want   int
	}{
		{func(c *Config) { c.NoServices = true }, policy.IsPolicy, 1},
		{func(c *Config) { c.NoPolicies = true }, func(k model.Kind) bool { return k == model.KindService }, 2},
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
