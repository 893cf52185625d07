package vppagent_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// inPortions is a full resync of the portions together; the last message of each key counts.
func (l *lab) inPortions(portions ...map[string]proto.Message) *event.Committed {
	l.t.Helper()
	rest := make(chan map[string]proto.Message, len(portions))
	for _, p := range portions[1:] {
		rest <- p
	}
	close(rest)
	return l.said(portions[0], rest)
}

func (l *lab) said(first map[string]proto.Message, rest <-chan map[string]proto.Message) *event.Committed {
	l.t.Helper()
	l.seq++
	c := l.agent.Commit(context.Background(), &event.Txn{Seq: l.seq, Cause: "test", Resync: event.Full, Values: first, Rest: rest})
	if err := l.sim.Crashed(); err != nil {
		l.t.Fatalf("VPP crashed: %v", err)
	}
	return l.note(c)
}

func portion(ms ...proto.Message) kv.Values {
	v := kv.Values{}
	for _, m := range ms {
		v.Put(m)
	}
	return v
}

func together(portions ...map[string]proto.Message) kv.Values {
	all := kv.Values{}
	for _, p := range portions {
		for k, m := range p {
			if all[k] = m; m == nil {
				delete(all, k)
			}
		}
	}
	return all
}

// numbered is the n-th of many Services of a node.
func numbered(n int) []proto.Message {
	vip := fmt.Sprintf("10.96.%d.%d", n/250, n%250+1)
	return []proto.Message{
		dnat(fmt.Sprintf("default/svc-%04d", n), vip, 80, "10.1.1.2:8080", "10.1.1.3:8080"),
		&contivl3.RejectRoute{DstNetwork: vip + "/32"},
	}
}

// cluster is a node and Services, in portions.
func cluster(sizes ...int) []map[string]proto.Message {
	out := []map[string]proto.Message{portion(node()...)}
	n := 0
	for _, size := range sizes {
		var ms []proto.Message
		for range size {
			ms = append(ms, numbered(n)...)
			n++
		}
		out = append(out, portion(ms...))
	}
	return out
}

// TestPortionsAreCarriedOutAhead gives the second portion when VPP has all of the first, and the end when it has that.
func TestPortionsAreCarriedOutAhead(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	portions := cluster(3, 2)
	seen := make(chan string, 1000)
	l.sim.Fail(func(name string) (int32, bool) { seen <- name; return 0, false })
	until := func(message string, times int) {
		for times > 0 {
			if <-seen == message {
				times--
			}
		}
	}
	rest := make(chan map[string]proto.Message)
	go func() {
		defer close(rest)
		until("nat44_ed_plugin_enable_disable", 1)
		rest <- portions[1]
		until("nat44_add_del_lb_static_mapping", 3)
		rest <- portions[2]
		until("nat44_add_del_lb_static_mapping", 2)
	}()
	c := l.said(portions[0], rest)
	l.allConfigured(c)
	if c.Add != len(together(portions...)) || c.Mod+c.Del != 0 {
		t.Errorf("add %d mod %d del %d, want %d values made", c.Add, c.Mod, c.Del, len(together(portions...)))
	}
	if !slices.IsSortedFunc(c.Statuses, func(a, b event.ValueStatus) int { return strings.Compare(a.Key, b.Key) }) || len(c.Statuses) < c.Add {
		t.Errorf("statuses are not those of all values, sorted:\n%s", statuses(c))
	}
	if records := l.agent.Snapshot().History; len(records) != 1 || len(records[0].Ops) != c.Add {
		t.Errorf("history:\n%s", records)
	}
	l.sim.Fail(nil)
	if got, want := l.sim.Dump(), fresh1(t, together(portions...)); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestPortionsAreCarriedOutAheadOfOpenings: the first portion opens pods that the agent closed before. Nothing waits for that but the openings, which
// are last.
func TestPortionsAreCarriedOutAheadOfOpenings(t *testing.T) {
	l := newLab(t, vppagent.Config{DenyUnknown: true, DenyEarly: true})
	pods(l)
	l.interfaces()
	l.wantClosed("at first", "tap1", "tap2")
	l.writes()
	portions := cluster(3, 2)
	for k, m := range portion(accessList("web", rule(acl.ACL_Rule_PERMIT, "", "", "")), &contivacl.InterfaceACLs{Interface: "tap1", Input: []string{"web"}}) {
		portions[0][k] = m
	}
	last := portion(&contivacl.InterfaceACLs{Interface: "tap2"})
	seen := make(chan string, 1000)
	l.sim.Fail(func(name string) (int32, bool) { seen <- name; return 0, false })
	rest := make(chan map[string]proto.Message)
	go func() {
		defer close(rest)
		for _, portion := range append(portions[1:], last) {
			rest <- portion
			for mappings := len(portion) / 2; mappings > 0; {
				if <-seen == "nat44_add_del_lb_static_mapping" {
					mappings--
				}
			}
		}
	}()
	l.allConfigured(l.said(portions[0], rest))
	l.sim.Fail(nil)
	w := l.writes()
	opened := slices.IndexFunc(w, func(s string) bool { return strings.HasPrefix(s, "acl_interface_set_acl_list") })
	mapped := 0
	for i, s := range w {
		if strings.HasPrefix(s, "nat44_add_del_lb_static_mapping") {
			mapped = i
		}
	}
	if opened < mapped {
		t.Errorf("message %d opens a pod, message %d is the last mapping:\n%s", opened, mapped, strings.Join(w, "\n"))
	}
	l.wantClosed("in the end")
	l.want = together(append(portions, last)...)
	l.allConfigured(l.resync())
	l.quiet("resync")
}

// fresh1 is the state of VPP if all values arrive at once.
func fresh1(t *testing.T, want kv.Values) string {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	l.want = want
	l.allConfigured(l.resync())
	return l.sim.Dump()
}

// TestPortionsKeepTheOrder: the reject route of a Service precedes its mapping, and the lists of interfaces precede every mapping.
func TestPortionsKeepTheOrder(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	l.writes()
	portions := cluster(700, 300, 1)
	for k, m := range portion(accessList("web", rule(acl.ACL_Rule_PERMIT, "", "", "")), &contivacl.InterfaceACLs{Interface: "tap1", Input: []string{"web"}}) {
		portions[0][k] = m
	}
	l.allConfigured(l.inPortions(portions...))
	routes, mappings, listed := 0, 0, false
	for _, w := range l.writes() {
		switch {
		case strings.HasPrefix(w, "ip_route_add_del"):
			routes++
		case strings.HasPrefix(w, "acl_interface_set_acl_list"):
			listed = true
		case strings.HasPrefix(w, "nat44_add_del_lb_static_mapping"):
			if mappings++; !listed || mappings > routes-1 { // one is the node's
				t.Fatalf("mapping %d after %d routes, lists set: %v", mappings, routes, listed)
			}
		}
	}
	if mappings != 1001 {
		t.Errorf("%d mappings", mappings)
	}
}

// TestRestartInPortions: VPP keeps the objects of before until the last portion, and the agent does not write wanted ones again.
func TestRestartInPortions(t *testing.T) {
	for _, journal := range []bool{true, false} {
		t.Run(fmt.Sprintf("journal=%v", journal), func(t *testing.T) {
			cfg := vppagent.Config{}
			if journal {
				cfg.Journal = filepath.Join(t.TempDir(), "j")
			}
			l := newLab(t, cfg)
			addPod(l, "tap1", "10.1.1.2")
			portions := cluster(3, 3)
			l.allConfigured(l.inPortions(portions...))
			l.writes()
			l.restartAgent()
			l.allConfigured(l.inPortions(portions...))
			l.quiet("restart")
			l.restartAgent()
			gone := kv.Key(numbered(4)[0])
			delete(portions[2], gone)
			portions[2][kv.Key(numbered(6)[0])] = numbered(6)[0]
			c := l.inPortions(portions...)
			l.allConfigured(c)
			if w := l.writes(); c.Add != 1 || c.Del != 1 || len(w) != 2 || !strings.Contains(w[0], "10.96.0.7") {
				t.Errorf("one service for another: %d added, %d removed, %q", c.Add, c.Del, w)
			}
		})
	}
}

// TestPortionsRemoveUnnamedKeys: a resync is complete, also for an agent with another earlier desired state.
func TestPortionsRemoveUnnamedKeys(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	portions := cluster(3, 3)
	l.allConfigured(l.inPortions(portions...))
	l.writes()
	c := l.inPortions(portions[0], portions[2])
	l.allConfigured(c)
	if c.Del != len(portions[1]) || c.Add+c.Mod != 0 {
		t.Errorf("add %d mod %d del %d, want %d removed", c.Add, c.Mod, c.Del, len(portions[1]))
	}
	if got, want := l.sim.Dump(), fresh1(t, together(portions[0], portions[2])); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestRefusedInAPortion: a refused value is tried once, and again when its retry is due; no other value waits for it.
func TestRefusedInAPortion(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := newLab(t, vppagent.Config{Now: func() time.Time { return now }})
	addPod(l, "tap1", "10.1.1.2")
	portions := cluster(3, 3)
	tries := 0
	l.sim.Fail(func(name string) (int32, bool) {
		if name == "nat44_add_del_lb_static_mapping" {
			if tries++; tries == 2 {
				return -1, false
			}
		}
		return 0, false
	})
	c := l.inPortions(portions...)
	var retrying []string
	for _, st := range c.Statuses {
		if st.State != event.Configured {
			retrying = append(retrying, st.Key+" "+st.State.String())
		}
	}
	if diff := cmp.Diff([]string{kv.Key(numbered(1)[0]) + " RETRYING"}, retrying); diff != "" || tries != 6 {
		t.Fatalf("%d mappings tried (-want +got):\n%s", tries, diff)
	}
	now = now.Add(time.Minute)
	l.step()
	if got, want := l.sim.Dump(), fresh1(t, together(portions...)); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestCutBetweenPortions cuts the connection at any message: the next connection completes the resync.
func TestCutBetweenPortions(t *testing.T) {
	portions := cluster(3, 3)
	want := fresh1(t, together(portions...))
	for at := 1; ; at++ {
		l := newLab(t, vppagent.Config{})
		addPod(l, "tap1", "10.1.1.2")
		n := 0
		l.sim.Fail(func(string) (int32, bool) { n++; return 0, n == at })
		c := l.inPortions(portions...)
		if n < at {
			l.allConfigured(c)
			if at < 20 {
				t.Errorf("%d messages altogether", n)
			}
			return
		}
		if c.Err == nil {
			t.Fatalf("cut at message %d: no error", at)
		}
		l.sim.Fail(nil)
		l.reconnect()
		l.step()
		if got := l.sim.Dump(); got != want {
			t.Fatalf("cut at message %d, got:\n%s\nwant:\n%s", at, got, want)
		}
		l.writes()
		l.restartAgent()
		l.allConfigured(l.inPortions(portions...))
		l.quiet(fmt.Sprintf("restart after a cut at message %d", at))
	}
}

// TestALaterPortionCounts: it may name keys whose requests are not answered yet, and keys that VPP already has.
func TestALaterPortionCounts(t *testing.T) {
	first := numbered(0)[0].(*nat.DNat44)
	other := dnat(first.Label, "10.96.0.1", 80, "10.1.1.9:8080")
	for name, last := range map[string]map[string]proto.Message{
		"changed": portion(other), "taken back": {kv.Key(first): nil}, "the same": portion(first),
	} {
		for _, between := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s after %d", name, between), func(t *testing.T) {
				l := newLab(t, vppagent.Config{})
				addPod(l, "tap1", "10.1.1.2")
				portions := append(cluster(slices.Repeat([]int{1}, 1+between)...), last, portion(numbered(9)...))
				l.allConfigured(l.inPortions(portions...))
				if got, want := l.sim.Dump(), fresh1(t, together(portions...)); got != want {
					t.Errorf("got:\n%s\nwant:\n%s", got, want)
				}
				l.writes()
				l.restartAgent()
				l.allConfigured(l.inPortions(portions...))
				l.quiet("restart")
			})
		}
	}
}

// TestNothingIsChangedBeforeTheEnd: VPP has a value that one portion changes and a later one changes back: nothing is written.
func TestNothingIsChangedBeforeTheEnd(t *testing.T) {
	l := newLab(t, vppagent.Config{DenyUnknown: true, DenyEarly: true})
	pods(l)
	was := dnat("default/svc-0000", "10.96.0.1", 80, "10.1.1.2:8080")
	open := func(lists ...string) *contivacl.InterfaceACLs {
		return &contivacl.InterfaceACLs{Interface: "tap1", Input: lists}
	}
	first := portion(append(node(), was, accessList("web", rule(acl.ACL_Rule_PERMIT, "", "", "")), open("web"), &contivacl.InterfaceACLs{Interface: "tap2"})...)
	l.allConfigured(l.inPortions(first))
	l.writes()
	l.restartAgent()
	l.allConfigured(l.inPortions(first, portion(dnat("default/svc-0000", "10.96.0.1", 80, "10.1.1.9:8080")), portion(was)))
	l.quiet("changed and changed back")
}

// TestPlanOfPortions is the plan of the whole.
func TestPlanOfPortions(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	portions := cluster(2, 2)
	rest := make(chan map[string]proto.Message, 2)
	rest <- portions[1]
	rest <- portions[2]
	close(rest)
	plan, err := l.agent.Plan(context.Background(), &event.Txn{Resync: event.Full, Values: portions[0], Rest: rest})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := l.agent.Plan(context.Background(), &event.Txn{Resync: event.Full, Values: together(portions...)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole.String(), plan.String()); diff != "" || plan.Empty() {
		t.Errorf("plan of the whole, plan of the portions:\n%s", diff)
	}
}

// cut distributes values over portions at random; some keys have another message, or none, before their last one. It draws no
// random numbers itself, so that recorded cases stay valid.
func cut(values kv.Values, before kv.Values) []map[string]proto.Message {
	seed := fnv.New64a()
	for _, key := range values.Keys() {
		fmt.Fprintln(seed, kv.Format(key, values[key]))
	}
	rng := rand.New(rand.NewPCG(seed.Sum64(), uint64(len(before))))
	out := make([]map[string]proto.Message, 1+rng.IntN(4))
	for i := range out {
		out[i] = map[string]proto.Message{}
	}
	first := rng.IntN(2) == 0 // values that others stand on
	for _, key := range values.Keys() {
		at := rng.IntN(len(out))
		switch {
		case strings.Contains(key, "nat44-settings"): // they apply when NAT44 is enabled, only once
			at = 0
		case first && !strings.Contains(key, "/dnat44/") && !strings.Contains(key, "route/"):
			at = 0
		}
		out[at][key] = values[key]
		if at > 0 && rng.IntN(10) == 0 {
			if was := before[key]; was != nil {
				out[at-1][key] = was
			}
		}
	}
	for _, key := range before.Keys() {
		if values[key] == nil && len(out) > 1 && rng.IntN(10) == 0 {
			out[0][key], out[len(out)-1][key] = before[key], nil
		}
	}
	return out
}

// TestStatusesOfALaterPortion: a status is reported once, in its final form; statuses of unimplemented keys are reported, too.
func TestStatusesOfALaterPortion(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	pool := portion(node()[2])
	first := portion(node()...)
	delete(first, pool.Keys()[0])
	unknown := portion(numbered(1)...)
	unknown["config/unknown/kind"] = numbered(1)[0]
	maps.Copy(unknown, pool)
	c := l.inPortions(first, portion(numbered(0)...), unknown)
	states := map[string][]event.State{}
	for _, st := range c.Statuses {
		states[st.Key] = append(states[st.Key], st.State)
	}
	for key := range together(first, portion(numbered(0)...), unknown) {
		want := event.Configured
		if key == "config/unknown/kind" {
			want = event.Invalid
		}
		if !slices.Equal(states[key], []event.State{want}) {
			t.Errorf("%s is %v, want %v", key, states[key], want)
		}
	}
}

// TestAnyKindInALaterPortion: of a kind whose numbers come from a dump, the objects made since are not lost.
func TestAnyKindInALaterPortion(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	bare := l.sim.Dump()
	a, b := accessList("a", rule(acl.ACL_Rule_PERMIT, "", "", "")), accessList("b", rule(acl.ACL_Rule_DENY, "", "", ""))
	l.allConfigured(l.inPortions(portion(a), portion(b), portion(numbered(0)[1])))
	l.allConfigured(l.del(kv.Key(a), kv.Key(b), kv.Key(numbered(0)[1])))
	if got := l.sim.Dump(); got != bare {
		t.Errorf("left:\n%s", got)
	}
}

// TestTakenBackBeforeTheReply: a later portion removes, or changes, values without a tag whose requests VPP has not answered.
func TestTakenBackBeforeTheReply(t *testing.T) {
	route := func(action contivl3.RejectRoute_Action) proto.Message {
		return &contivl3.RejectRoute{DstNetwork: "10.96.0.1/32", Action: action}
	}
	key := kv.Key(route(0))
	for name, then := range map[string]proto.Message{"gone": nil, "changed": route(contivl3.RejectRoute_PROHIBIT)} {
		for _, refused := range []bool{false, true} {
			l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
			pods(l)
			if refused {
				l.sim.Fail(func(name string) (int32, bool) { return -1, strings.HasPrefix(name, "ip_route_add") })
			}
			l.inPortions(portion(route(0)), map[string]proto.Message{key: then})
			l.sim.Fail(nil)
			l.reconnect()
			if l.want = (kv.Values{}); then != nil {
				l.want.Put(then)
			}
			l.txn(event.Downstream, nil)
			if got, want := canonical(l.sim.Dump()), canonical(fresh(t, l.want)); got != want {
				t.Errorf("%s, refused %t: got:\n%s\nwant:\n%s", name, refused, got, want)
			}
		}
	}
}
