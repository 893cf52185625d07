package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/test/samples"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

const (
	refusedPort = `apiVersion: v1
kind: Service
metadata: {name: odd, namespace: default}
spec: {clusterIP: 10.96.0.77, ports: [{name: a, port: 80}, {name: b, port: 81, protocol: SCTP}]}`
	refusedPorts = `apiVersion: v1
kind: Service
metadata: {name: odd, namespace: default}
spec: {clusterIP: 10.96.0.77, ports: [{name: b, port: 81, protocol: SCTP}]}`
	refusedService = `apiVersion: v1
kind: Service
metadata: {name: none, namespace: default}
spec: {clusterIP: 10.96.0.78, ports: [{name: a, port: 70000}]}`
	refusedPolicy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: odd, namespace: default}
spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: nonsense}}]}]}`
)

// A running agent is healthy; each kind of object that is not served as it asks makes it unhealthy, and it stays ready.
func TestStatusShowsEveryProblem(t *testing.T) {
	for name, tc := range map[string]struct {
		objects, object, state string
	}{
		"nothing":           {},
		"a refused port":    {refusedPort, "Service default/odd", status.Partial},
		"refused ports":     {refusedPorts, "Service default/odd", status.Refused},
		"a refused Service": {refusedService, "Service default/none", status.Refused},
		"a refused policy":  {refusedPolicy, "NetworkPolicy default/odd", status.Partial},
	} {
		t.Run(name, func(t *testing.T) {
			var more []string
			if tc.objects != "" {
				more = append(more, tc.objects)
			}
			w := start(t, nil, more...)
			w.settled()
			st, err := w.agent.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			problems, err := w.agent.gallery.Ready(t.Context())
			if err != nil {
				t.Errorf("not ready: %v", err)
			}
			if tc.object == "" {
				if !st.Healthy || len(problems) > 0 {
					t.Errorf("not healthy: %v", st.Problems)
				}
				return
			}
			want := tc.object + " is " + tc.state
			if st.Healthy || st.Summary != "1 "+tc.state || len(problems) != 1 || !strings.HasPrefix(problems[0], want) {
				t.Errorf("healthy %t, %q, %v", st.Healthy, st.Summary, problems)
			}
			rep, err := w.agent.gallery.Report(t.Context())
			if err != nil || rep.Summary != st.Summary || !rep.Ready {
				t.Errorf("report %+v, %v", rep, err)
			}
		})
	}
}

// A refusal by VPP is a problem, and the node stays ready; without VPP it is not ready.
func TestStatusOfTrouble(t *testing.T) {
	w := start(t, nil)
	w.settled()
	w.vpp.Fail(func(name string) (int32, bool) {
		if name == "nat44_add_del_lb_static_mapping" {
			return -1, false
		}
		return 0, false
	})
	w.write("slice.yaml", endpoints)
	until := func(what string, fits func(*status.Status) bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			st, err := w.agent.Status(t.Context())
			if err == nil && fits(st) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v, %v", what, st, err)
			}
		}
	}
	until("a value in retry", func(st *status.Status) bool {
		return st.Ready && !st.Healthy && strings.HasPrefix(st.Summary, "2 RETRYING") && st.Problems[0].Object == "Service default/web"
	})
	w.vpp.Fail(nil)
	until("after the retry", func(st *status.Status) bool { return st.Healthy })
	w.vpp.Close()
	until("VPP away", func(st *status.Status) bool {
		return !st.Ready && !st.Healthy && strings.HasPrefix(st.Problems[0].String(), "VPP is FAILED")
	})
}

// A running agent finds another program's change, reports it in the status and on the object, and is healthy again.
func TestDriftIsReported(t *testing.T) {
	w := start(t, func(c *Config) { c.VPPAgent.Recheck = 20 * time.Millisecond })
	w.wait("first sync", firstSync)
	w.write("slice.yaml", endpoints)
	w.wait("change", func(c *event.Committed) bool { return strings.Contains(c.Cause, "endpointslice/default/web-1") })
	key := kv.DNat44Key("default/web")
	other := newOther(t, w)
	other.remove(key, w.agent.vppagent)
	c := w.wait("recheck", func(c *event.Committed) bool { return len(c.Drift) > 0 })
	if d := c.Drift[0]; len(c.Drift) != 1 || d.Key != key || !d.Repaired || c.Cause != "recheck" {
		t.Errorf("%+v", c.Drift)
	}
	st, err := w.agent.Status(t.Context())
	if err != nil || len(st.Drift) != 1 || !st.Healthy {
		t.Errorf("%+v, %v", st, err)
	}
	rep, err := w.agent.gallery.Report(t.Context())
	if err != nil || len(rep.Problems) != 1 || rep.Problems[0].Reason != event.Drifted || rep.Problems[0].Ref.String() != "Service default/web" {
		t.Errorf("%+v, %v", rep, err)
	}
	if n := samples.Read(t, w.agent.registry)[`contiv_drift_total{kind="dnat44",result="repaired"}`]; n != 1 {
		t.Errorf("contiv_drift_total %v", n)
	}
}

// other is a second agent on the VPP of a world.
type other struct {
	t    *testing.T
	conn *vpp.Conn
}

func newOther(t *testing.T, w *world) *other {
	connected := make(chan struct{}, 10)
	o := &other{t: t, conn: vpp.New(vpp.Config{Dial: w.vpp.Dial, OnState: func(s vpp.State) {
		if s.Connected {
			connected <- struct{}{}
		}
	}})}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = o.conn.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	<-connected
	return o
}

// remove removes one value from an agent's desired state.
func (o *other) remove(key string, of *vppagent.Agent) {
	o.t.Helper()
	values := map[string]proto.Message{}
	for _, v := range of.Snapshot().Values() {
		if v.Key != key && v.Value != nil {
			values[v.Key] = v.Value
		}
	}
	a := vppagent.New(vppagent.Config{Caller: o.conn})
	if c := a.Commit(o.t.Context(), &event.Txn{Resync: event.Full, Values: values}); c.Err != nil || c.Del != 1 {
		o.t.Fatalf("%+v", c)
	}
}
