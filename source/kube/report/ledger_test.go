package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

func service(name string) model.Ref {
	return model.Ref{Kind: model.KindService, Namespace: "shop", Name: name}
}

// cluster maps existing objects to their UIDs.
type cluster map[model.Ref]string

func (c cluster) find(ref model.Ref) (kube.Identity, bool) {
	uid, ok := c[ref]
	return kube.Identity{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: string(ref.Kind)}, Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(uid),
	}, ok
}

// story feeds a ledger, and records its statements with their time in seconds.
type story struct {
	t     *testing.T
	l     *ledger
	now   time.Time
	begun time.Time
	world cluster
	nodes []string
	said  []string
}

func newStory(t *testing.T, nodes ...string) *story {
	begun := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	return &story{t: t, l: newLedger("node-1"), now: begun, begun: begun, world: cluster{service("web"): "u1", service("db"): "u2"}, nodes: nodes}
}

// pass lets time pass, with one look every 5 seconds.
func (s *story) pass(d time.Duration, problems ...event.Problem) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(interval) {
		s.l.recordProblems(s.now, problems, s.nodes, s.world.find)
		for st := s.l.nextStatement(s.now); st != nil; st = s.l.nextStatement(s.now) {
			s.said = append(s.said, fmt.Sprintf("%s %s %s", s.now.Sub(s.begun), st.object.Name, st.reason))
			s.l.done(s.now, st)
		}
	}
}

func (s *story) expect(want ...string) {
	s.t.Helper()
	if !slices.Equal(s.said, want) {
		s.t.Errorf("said:\n%s\nwant:\n%s", strings.Join(s.said, "\n"), strings.Join(want, "\n"))
	}
	s.said = nil
}

var (
	ports = event.Problem{Ref: service("web"), Reason: event.NotSupported, Text: "port \"gre\" is not served"}
	taken = event.Problem{Ref: service("web"), Reason: event.NotSupported, Text: "10.0.0.1:80 is not served: it belongs to Service db"}
	full  = event.Problem{Ref: service("db"), Reason: event.NotProgrammed, Text: "dnat44/db is FAILED"}
)

// Each cause has one Event, renewed every half hour, and one more when the object has no problem left. A problem that ends
// before its report has none.
func TestOneEventForEachCause(t *testing.T) {
	s := newStory(t, "node-1")
	s.pass(time.Minute, ports, taken, ports)
	s.expect("5s web NotSupported", "5s web NotSupported")
	s.pass(31*time.Minute, ports, taken)
	s.expect("30m5s web NotSupported", "30m5s web NotSupported")
	s.pass(5*time.Minute, ports)
	s.expect()
	s.pass(5 * time.Minute)
	s.expect("37m5s web Rendered")
	s.pass(4 * time.Second)
	s.pass(2*time.Hour - 4*time.Second)
	s.expect()
	s.pass(25*time.Second, full)
	s.pass(10*time.Minute, ports)
	s.expect("2h42m35s web NotSupported")
	if len(s.l.entries) != 1 || len(s.l.objects) != 1 {
		t.Errorf("%d entries, %d objects", len(s.l.entries), len(s.l.objects))
	}
}

// A problem of this node must last before it is reported, and be over for as long before that is reported.
func TestShortProblemIsNotReported(t *testing.T) {
	s := newStory(t, "node-1")
	for range 10 {
		s.pass(25*time.Second, full)
		s.pass(5 * time.Second)
	}
	s.expect()
	s.pass(40*time.Second, full)
	s.pass(25 * time.Second) // over, but not long enough
	s.pass(40*time.Second, full)
	s.expect("5m30s db NotProgrammed", "6m35s db NotProgrammed")
	s.pass(time.Minute)
	s.expect("7m15s db Rendered")
	if len(s.l.entries) != 0 {
		t.Errorf("%d entries", len(s.l.entries))
	}
}

// A deleted object is not reported as repaired, and a recreated one is a different object.
func TestDeletedObjectIsNotRepaired(t *testing.T) {
	s := newStory(t, "node-1")
	s.pass(time.Minute, ports)
	delete(s.world, ports.Ref)
	s.pass(time.Minute)
	s.expect("5s web NotSupported")
	s.world[ports.Ref] = "u3"
	s.pass(time.Minute, ports)
	s.world[ports.Ref] = "u4"
	s.pass(time.Minute, ports)
	s.expect("2m5s web NotSupported", "3m5s web NotSupported")
	s.pass(time.Minute)
	s.expect("4m5s web Rendered")
}

// Five agents report a problem that all see, in turn. Each agent reports its own problems. An Event's name does not depend
// on the agent.
func TestFiveAgentsReportInTurn(t *testing.T) {
	var nodes []string
	for i := range 1000 {
		nodes = append(nodes, fmt.Sprintf("node-%d", i))
	}
	world := cluster{ports.Ref: "u1", full.Ref: "u2"}
	at := map[time.Duration][]string{}
	names := map[string]bool{}
	begun := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	longest := time.Duration(0)
	for _, node := range nodes {
		own, all := newLedger(node), newLedger(node)
		own.recordProblems(begun, []event.Problem{full}, nodes, world.find)
		for _, e := range own.entries {
			longest = max(longest, e.due.Sub(begun))
		}
		all.recordProblems(begun, []event.Problem{ports}, nodes, world.find)
		for _, e := range all.entries {
			due := e.due
			if s := all.nextStatement(due); s != nil {
				at[due.Sub(begun)] = append(at[due.Sub(begun)], node)
				names[s.name()] = true
			}
		}
	}
	if len(names) != 1 || len(at) != reporters {
		t.Errorf("%d names; %v", len(names), at)
	}
	for i := range reporters {
		if who := at[brief+time.Duration(i)*turn]; len(who) != 1 {
			t.Errorf("turn %d: %v", i, who)
		}
	}
	if longest < 45*time.Second || longest > 51*time.Second {
		t.Errorf("1,000 nodes tell what each has within %s", longest)
	}
}

// Other nodes take over reporting when nodes are removed.
func TestOthersReportWhenNodesAreRemoved(t *testing.T) {
	var nodes []string
	for i := range 1000 {
		nodes = append(nodes, fmt.Sprintf("other-%d", i))
	}
	s := newStory(t, nodes...)
	if s.l.nodes = nodes; s.l.rank("u1", reporters) != reporters {
		t.Fatal("the name is ill chosen: this node is among the first")
	}
	s.pass(time.Hour, ports)
	s.expect()
	s.nodes = nil
	s.pass(time.Hour, ports)
	if len(s.said) == 0 {
		t.Error("nobody tells")
	}
}

// The bucket lets a burst pass, then one request per second, or fewer in a large cluster.
func TestBucket(t *testing.T) {
	var problems []event.Problem
	s := newStory(t, "node-1")
	for i := range 1000 {
		p := event.Problem{Ref: service(fmt.Sprint("s", i)), Reason: event.NotProgrammed, Text: "no"}
		s.world[p.Ref] = fmt.Sprint("uid", i)
		problems = append(problems, p)
	}
	s.pass(130*time.Second, problems...)
	if n := len(s.said); n < 100 || n > 110 {
		t.Errorf("%d in 100 seconds", n)
	}
	b := bucket{rate: requests / 5000.0}
	sent := 0
	for i := range 1000 {
		if b.takeToken(s.now.Add(time.Duration(i) * time.Second)) {
			sent++
		}
	}
	if sent != burst+9 {
		t.Errorf("%d in 1000 seconds", sent)
	}
}

// A problem that returns after its repair was reported is sent, even if the API server has a recent Event of it. A problem
// that an agent finds at its start is not sent again.
func TestReturnedProblemIsReported(t *testing.T) {
	s := newStory(t, "node-1")
	next := func(problems ...event.Problem) *statement {
		t.Helper()
		for range 100 {
			s.l.recordProblems(s.now, problems, s.nodes, s.world.find)
			st := s.l.nextStatement(s.now)
			if s.now = s.now.Add(interval); st != nil {
				s.l.done(s.now, st)
				return st
			}
		}
		t.Fatal("nothing is said")
		return nil
	}
	if st := next(ports); !st.after.Equal(s.begun.Add(-recent)) {
		t.Errorf("at first: %s", st.after)
	}
	over := s.now
	if st := next(); st.reason != event.Rendered || !st.after.Equal(over) {
		t.Errorf("repaired: %s %s, want %s", st.reason, st.after, over)
	}
	again := s.now
	if st := next(ports); !st.after.Equal(again) {
		t.Errorf("again: %s, want %s", st.after, again)
	}
	more := s.now
	if st := next(ports, taken); st.text != taken.Text || !st.after.Equal(more.Add(-recent)) {
		t.Errorf("one more: %s %s, want %s", st.text, st.after, more.Add(-recent))
	}
}

// A rejected problem is retried at the next refresh; a rejected repair is not retried.
func TestRejectedRepairIsNotRetried(t *testing.T) {
	s := newStory(t, "node-1")
	look := func(problems ...event.Problem) { s.l.recordProblems(s.now, problems, s.nodes, s.world.find) }
	look(ports)
	s.now = s.now.Add(brief)
	st := s.l.nextStatement(s.now)
	s.l.refused(s.now, st)
	if s.l.nextStatement(s.now.Add(refresh-1)) != nil || s.l.nextStatement(s.now.Add(refresh)) == nil {
		t.Error("not tried again then")
	}
	s.l.done(s.now, st)
	look()
	s.now = s.now.Add(brief)
	if st = s.l.nextStatement(s.now); st == nil || st.reason != event.Rendered {
		t.Fatal("not repaired")
	}
	s.l.refused(s.now, st)
	if st = s.l.nextStatement(s.now.Add(refresh)); st != nil {
		t.Errorf("repaired, and sent again: %+v", st)
	}
}

// A failed request is retried soon, but less and less often if the right to it is missing.
func TestBackoff(t *testing.T) {
	var b backoff.Timer
	at := time.Now()
	pauses := func(err error, n int) (out []time.Duration) {
		for range n {
			record(&b, at, err)
			out = append(out, b.At.Sub(at))
		}
		return out
	}
	if p := pauses(errors.New("refused"), 5); p[0] != 5*time.Second || p[1] != 10*time.Second || p[4] != 30*time.Second {
		t.Error(p)
	}
	if record(&b, at, nil); !b.At.IsZero() {
		t.Error(b)
	}
	denied := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	if p := pauses(denied, 20); p[0] != 5*time.Second || p[4] != 80*time.Second || p[19] != 30*time.Minute {
		t.Error(p)
	}
	if record(&b, at, apierrors.NewNotFound(schema.GroupResource{}, "")); !b.At.IsZero() {
		t.Error(b)
	}
}

func TestName(t *testing.T) {
	a := statement{cause: cause{"u1", event.NotSupported, "x"}, object: kube.Identity{Name: strings.Repeat("a", 235) + "." + strings.Repeat("b", 17)}}
	if n := a.name(); len(n) > 253 || strings.Contains(n, "..") {
		t.Errorf("%d bytes: %s", len(n), n)
	}
	b := a
	b.text = "y"
	c := a
	c.uid = "u2"
	if a.name() == b.name() || a.name() == c.name() {
		t.Error("two causes, one name")
	}
}
