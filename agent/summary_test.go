package agent

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// ill has, for each field of Status, a status that is healthy except for that field; nil: the field has no influence on
// health, for the given reason.
var ill = map[string]struct {
	status *Status
	why    string
}{
	"Node":     {nil, "a name"},
	"InSync":   {nil, "a transaction may be under way; Ready says what matters"},
	"Waiting":  {nil, "is shown if Ready is false"},
	"Ready":    {&Status{Waiting: "a change is overdue"}, ""},
	"Healthy":  {nil, "follows from Problems"},
	"Summary":  {nil, "follows from Problems"},
	"Problems": {nil, "follows from the rest"},
	"VPP":      {&Status{VPP: VPPStatus{Error: "refused"}}, ""},
	"Sources":  {&Status{Sources: []SourceStatus{{Name: "kube", Status: "resync"}}}, ""},
	"Settings": {nil, "configuration"},
	"Felix":    {&Status{Felix: &attachment.FelixStatus{State: "waiting for in_sync"}}, ""},
	"Driver":   {&Status{Driver: &attachment.DriverStatus{Path: "d"}}, ""},
	"NAT":      {&Status{NAT: &nattable.Status{Problem: "nearly full"}}, ""},
	"Ifs":      {nil, "what is missing is a note on the Pod"},
	"Services": {&Status{Services: []ServiceStatus{{Name: "a/b", State: statePartial, Reasons: []string{"why"}}}}, ""},
	"Policies": {&Status{Policies: []PolicyStatus{{Object: "NetworkPolicy a/b", State: stateRefused}}}, ""},
	"Refused":  {&Status{Refused: []Refusal{{Object: "Pod a/b", Error: "no"}}}, ""},
	"Notes":    {&Status{Notes: []Note{{Object: "Pod a/b", Reason: "isolated", State: statePartial}}}, ""},
	"Values":   {nil, "a count"},
	"Mappings": {nil, "a count"},
	"Unwell":   {&Status{Unwell: []ValueStatus{{Key: "k", State: "RETRYING"}}}, ""},
	"Foreign":  {nil, "what others made is theirs"},
	"Spoofed":  {nil, "packets that a source check dropped: it does what it is for"},
	"Drift":    {&Status{Drift: []DriftStatus{{Key: "k", Repaired: true, Contest: "another program changes it"}}}, ""},
	"History":  {nil, "the past"},
	"Busy":     {&Status{Busy: "the event loop has been busy for 3s"}, ""},
	"Last":     {&Status{Last: &Transaction{Error: "VPP is away"}}, ""},
}

// The summary must evaluate a new field of Status, or the table must list it as one without influence on health.
func TestSummaryLooksAtEveryField(t *testing.T) {
	for f := range reflect.TypeFor[Status]().Fields() {
		one, known := ill[f.Name]
		switch {
		case !f.IsExported():
			continue
		case !known:
			t.Errorf("Status.%s: does the summary look at it?", f.Name)
			continue
		case one.status == nil:
			if one.why == "" {
				t.Errorf("Status.%s: why does the summary not look at it?", f.Name)
			}
			continue
		}
		st := *one.status
		st.Ready = f.Name != "Ready"
		if f.Name != "VPP" {
			st.VPP.Connected = true
		}
		if st.summarize(); st.Healthy || len(st.Problems) != 1 || !strings.HasPrefix(st.Summary, "1 ") {
			t.Errorf("Status.%s: healthy %t, %q, %v", f.Name, st.Healthy, st.Summary, st.Problems)
		}
	}
	for _, more := range []Status{
		{Sources: []SourceStatus{{Name: "kube", Status: "in-sync", Error: "the API server is away"}}},
		{Felix: &attachment.FelixStatus{State: "in-sync", Endpoints: []attachment.Endpoint{{Name: "w", Status: "down"}}}},
		{Driver: &attachment.DriverStatus{PID: 1, InSync: true, Behind: 3}},
		{Driver: &attachment.DriverStatus{PID: 1, InSync: true, Endpoints: []attachment.Endpoint{{Name: "w", Status: "error"}}}},
		{Services: []ServiceStatus{{Name: "a/b", State: "A STATE NOBODY KNOWS"}}},
		{Drift: []DriftStatus{{Key: "k", Error: "VPP finds no mapping"}}},
	} {
		more.Ready, more.VPP.Connected = true, true
		if more.summarize(); more.Healthy || len(more.Problems) != 1 {
			t.Errorf("%+v", more)
		}
	}
	fine := Status{
		Ready: true, VPP: VPPStatus{Connected: true}, Sources: []SourceStatus{{Status: "in-sync"}}, Services: []ServiceStatus{{State: "CONFIGURED"}, {State: stateSkipped}},
		Policies: []PolicyStatus{{State: stateIdle}}, Notes: []Note{{Reason: "a remark"}}, Drift: []DriftStatus{{Key: "k", Repaired: true}}, Last: &Transaction{},
	}
	if fine.summarize(); !fine.Healthy || fine.Summary != "" {
		t.Errorf("nothing is wrong: %+v", fine)
	}
}

func TestSummaryCounts(t *testing.T) {
	st := Status{
		Ready: true, VPP: VPPStatus{Connected: true},
		Services: []ServiceStatus{{Name: "a/1", State: statePartial}, {Name: "a/2", State: "FAILED", Reasons: []string{"x", "y"}}},
		Refused:  []Refusal{{Object: "Service a/1", Error: "no port"}, {Object: "Service a/3", Error: "no port"}},
		Unwell:   []ValueStatus{{Key: "k", State: "PENDING", Waiting: []string{"tap1"}}},
	}
	st.summarize()
	want := []Problem{
		{"Service a/2", "FAILED", "x; y"}, {"k", "PENDING", "waiting for tap1"}, {"Service a/3", stateRefused, "no port"}, {"Service a/1", statePartial, ""},
	}
	if diff := cmp.Diff(want, st.Problems); diff != "" || st.Summary != "1 FAILED, 1 PENDING, 1 REFUSED, 1 PARTIAL" {
		t.Errorf("%s (-want +got):\n%s", st.Summary, diff)
	}
}

// The test lists every place in the code that makes a remark, and how the remark reaches the summary. A Note uses its
// Refused; a pure remark does not reach it.
func TestEveryRemarkIsKnown(t *testing.T) {
	known := map[string]string{
		"../renderer/adapter/service.go": "Add has refused; Services: refusal",
		"../renderer/nat44/node.go":      "a remark on the Node: pods keep their addresses outside the cluster",
		"../renderer/cnat/node.go":       "a remark on the Node: pods keep their addresses outside the cluster",
		"../renderer/acl/note.go":        "refused; policies and profiles",
		"../renderer/acl/list.go":        "refused; isolated endpoints",
		"../renderer/acl/filter.go":      "refused; SCTP",
		"../renderer/acl/pack.go":        "refused; too many rules",
		"../renderer/acl/host.go":        "refused; host endpoints",
		"../calc/active.go":              "refused; policies",
		"../renderer/acl/source.go":      "refused; source checks",
		"../plugins/policy/source.go":    "refused; Pods with wrong annotations, a Node whose traffic is dropped",
		"../budget/ledger.go":            "policyStatuses; policies that are closed",
		"../plugins/service/build.go":    "refused says it; Services: refusal",
		"../plugins/service/status.go":   "refused; Pods without an interface",
		"../plugins/service/node.go":     "refused says it; the Node",
	}
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "interop", "tools", "testdata", "bin"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../agent/"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "model.Note") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || len(lit.Elts) == 0 {
				return true
			}
			one := lit.Type
			if list, is := one.(*ast.ArrayType); is {
				one = list.Elt
			}
			if sel, is := one.(*ast.SelectorExpr); is && sel.Sel.Name == "Note" {
				found[filepath.ToSlash(path)] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range found {
		if known[path] == "" {
			t.Errorf("%s makes remarks: how do they come into the summary?", path)
		}
	}
	for path := range maps.Keys(known) {
		if !found[path] {
			t.Errorf("%s makes no remarks any more", path)
		}
	}
}

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
		"a refused port":    {refusedPort, "Service default/odd", statePartial},
		"refused ports":     {refusedPorts, "Service default/odd", stateRefused},
		"a refused Service": {refusedService, "Service default/none", stateRefused},
		"a refused policy":  {refusedPolicy, "NetworkPolicy default/odd", statePartial},
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
			problems, err := w.agent.ready(t.Context())
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
			rep, err := w.agent.report(t.Context())
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
	until := func(what string, fits func(*Status) bool) {
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
	until("a value in retry", func(st *Status) bool {
		return st.Ready && !st.Healthy && strings.HasPrefix(st.Summary, "2 RETRYING") && st.Problems[0].Object == "Service default/web"
	})
	w.vpp.Fail(nil)
	until("after the retry", func(st *Status) bool { return st.Healthy })
	w.vpp.Close()
	until("VPP away", func(st *Status) bool {
		return !st.Ready && !st.Healthy && strings.HasPrefix(st.Problems[0].String(), "VPP is FAILED")
	})
}

// The status shows drift that was found and repaired, with a count; the line disappears later.
func TestStatusOfDrift(t *testing.T) {
	now := time.Now()
	p := &parts{cfg: Config{NodeName: "node-1", Now: func() time.Time { return now }}}
	drifted := func(age time.Duration, contest string) vppagent.Drifted {
		return vppagent.Drifted{Drift: event.Drift{Key: "k", What: event.DriftMissing, Repaired: true, Times: 4, Contest: contest}, Last: now.Add(-age)}
	}
	if got := p.drift([]vppagent.Drifted{drifted(time.Minute, ""), drifted(driftShown, "")}); len(got) != 1 || got[0].Times != 4 {
		t.Errorf("%+v", got)
	}
	broken := drifted(time.Minute, "")
	broken.Repaired, broken.Err = false, "no"
	p.cfg.Recheck = 30 * time.Second
	if got := p.drift([]vppagent.Drifted{broken}); got[0].Error != "no" {
		t.Errorf("%+v", got)
	}
	if broken.Last = now.Add(-2 * time.Minute); p.drift([]vppagent.Drifted{broken})[0].Error != "" {
		t.Error("an error that no round found again")
	}
	node := model.Ref{Kind: model.KindNode, Name: "node-1"}
	for _, tc := range []struct {
		d    DriftStatus
		want string
	}{
		{DriftStatus{Key: "k", What: "missing", Repaired: true}, "another program changed VPP: k was missing; the agent repaired it"},
		{DriftStatus{Key: "k", What: "changed"}, "another program changed VPP: k was changed"},
		{DriftStatus{Key: "k", What: "changed", Contest: "x"}, "another program changed VPP: k was changed again and again"},
	} {
		if got := driftProblem(node, &tc.d); got != (event.Problem{Ref: node, Reason: event.Drifted, Text: tc.want}) {
			t.Errorf("%+v", got)
		}
	}
}

// A running agent finds another program's change, reports it in the status and on the object, and is healthy again.
func TestDriftIsReported(t *testing.T) {
	w := start(t, func(c *Config) { c.Recheck = 20 * time.Millisecond })
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
	rep, err := w.agent.report(t.Context())
	if err != nil || len(rep.Problems) != 1 || rep.Problems[0].Reason != event.Drifted || rep.Problems[0].Ref.String() != "Service default/web" {
		t.Errorf("%+v, %v", rep, err)
	}
	if n := testutil.ToFloat64(w.agent.metrics.drift.WithLabelValues("dnat44", "repaired")); n != 1 {
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
