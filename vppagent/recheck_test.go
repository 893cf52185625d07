package vppagent_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// clocked is a lab whose agent rechecks VPP by a clock that the test moves.
type clocked struct {
	*lab
	now  time.Time
	logs bytes.Buffer
}

const roundTime = 30 * time.Second

func newClocked(t tb) *clocked {
	c := &clocked{now: time.Unix(1_700_000_000, 0)}
	c.lab = newLab(t, vppagent.Config{
		Recheck: roundTime, Now: func() time.Time { return c.now }, Logger: slog.New(slog.NewTextHandler(&c.logs, nil)),
	})
	return c
}

// round advances the clock by a whole round, second by second, and returns the findings.
func (c *clocked) round() (found []event.Drift) {
	for range int(roundTime / time.Second) {
		c.now = c.now.Add(time.Second)
		for _, e := range c.agent.Step(context.Background(), nil) {
			if done, ok := e.(*event.Committed); ok {
				found = append(found, done.Drift...)
			}
		}
	}
	return found
}

func lines(found []event.Drift) []string {
	var out []string
	for _, d := range found {
		out = append(out, fmt.Sprintf("%s %s %t", d.Key, d.What, d.Repaired))
	}
	slices.Sort(out)
	return out
}

// other is another agent on the same VPP: it undoes our agent's changes, and shares none of its state.
func (c *clocked) other(t tb, values map[string]proto.Message) {
	t.Helper()
	o := vppagent.New(vppagent.Config{Caller: c.conn})
	if done := o.Commit(context.Background(), &event.Txn{Seq: 1, Resync: event.Full, Values: c.want}); done.Err != nil {
		t.Fatal(done.Err)
	}
	if done := o.Commit(context.Background(), &event.Txn{Seq: 2, Values: values}); done.Err != nil {
		t.Fatal(done.Err)
	}
}

// world is a node with some values of every kind that a Kubernetes node has.
func world() []proto.Message {
	return append(node(),
		&nat.Nat44Interface{Name: "tap2", OutputFeature: true},
		dnat("default/a", "10.96.0.1", 80, "10.1.1.2:8080", "10.1.1.3:8080"), dnat("default/b", "10.96.0.2", 80, "10.1.1.2:8080"),
		dnat("default/c", "10.96.0.3", 80, "10.1.1.2:8080"),
		accessList("web", rule(acl.ACL_Rule_PERMIT, "tcp", "", "10.1.1.2/32", 80)), accessList("rest", rule(acl.ACL_Rule_DENY, "", "", "")),
		lists("tap1", []string{"web", "rest"}, []string{"rest"}),
		&contivl3.RejectRoute{DstNetwork: "10.96.0.9/32", Action: contivl3.RejectRoute_UNREACHABLE},
		translated(),
	)
}

func translated() *cnat.Translation {
	m := translation("2001:db8:96::1", 80)
	m.Paths = []*cnat.Path{{Destination: &cnat.Endpoint{Address: "2001:db8:1::1", Port: 8080}}}
	return m
}

// The agent finds, repairs, counts and names the change of another client within one round; the round after it writes nothing.
func TestRecheckRepairs(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	c.allConfigured(c.put(world()...))
	c.writes()
	if found := c.round(); len(found) > 0 {
		t.Fatalf("an unchanged VPP: %v", found)
	}
	c.quiet("an unchanged VPP")
	before := c.sim.Dump()
	c.other(t, map[string]proto.Message{
		kv.DNat44Key("default/a"): nil, kv.DNat44Key("default/b"): dnat("default/b", "10.96.0.2", 80, "10.1.1.9:8080"), kv.DNat44Key("default/c"): nil,
		kv.InterfaceACLsKey("tap1"):                               lists("tap1", []string{"rest", "web"}, nil),
		kv.Key(&nat.Nat44Interface{Name: "tap2"}):                 nil,
		kv.Key(&contivl3.RejectRoute{DstNetwork: "10.96.0.9/32"}): nil, kv.Key(translated()): nil,
	})
	if c.sim.Dump() == before {
		t.Fatal("nothing was changed")
	}
	found := c.round()
	if after := c.sim.Dump(); canonical(after) != canonical(before) {
		t.Errorf("not repaired:\n%s\nwant\n%s", after, before)
	}
	want := []string{
		kv.Key(&contivl3.RejectRoute{DstNetwork: "10.96.0.9/32"}) + " missing true", kv.Key(translated()) + " missing true",
		kv.InterfaceACLsKey("tap1") + " changed true", kv.DNat44Key("default/a") + " missing true", kv.DNat44Key("default/b") + " changed true",
		kv.DNat44Key("default/c") + " missing true", kv.Key(&nat.Nat44Interface{Name: "tap2"}) + " missing true",
	}
	slices.Sort(want)
	if got := lines(found); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c.round()
	if text := c.logs.String(); strings.Count(text, "msg=drift") != 1 || !strings.Contains(text, "found=7 repaired=7") {
		t.Errorf("want one line of the round with drift:\n%s", text)
	}
	c.writes()
	if found := c.round(); len(found) > 0 {
		t.Errorf("after the repair: %v", found)
	}
	c.quiet("after the repair")
}

// Rounds restore the desired state after any change of another agent, and no unchanged value drifts.
func TestRecheckAnything(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tt := &rapidTB{TB: t, r: r}
		defer tt.done()
		c := newClocked(tt)
		pods(c.lab)
		c.want = wish(r)
		if done := c.resync(); done.Err != nil {
			r.Fatal(done.Err)
		}
		for c.step() {
		}
		c.round()
		c.writes()
		before := c.sim.Dump()
		if found := c.round(); len(found) > 0 || len(c.writes()) > 0 {
			r.Fatalf("an unchanged VPP: %v", found)
		}
		theirs := changes(c.want, wish(r))
		for key, m := range theirs {
			tagged := strings.Contains(key, "/dnat44/") || strings.Contains(key, "/acl/") || strings.Contains(key, "/interface-acls/")
			if strings.Contains(key, "/v2/interfaces/") || m != nil && !tagged {
				delete(theirs, key) // VPP reports deleted interfaces at once; a new object without a tag belongs to the other agent
			}
		}
		c.other(tt, theirs)
		changed := c.sim.Dump() != before
		var found []event.Drift
		for range 4 {
			found = append(found, c.round()...)
		}
		if after := c.sim.Dump(); canonical(after) != canonical(before) {
			r.Fatalf("after %v\nfound %v\nVPP has\n%s\nwant\n%s", theirs, found, after, before)
		}
		if !changed && len(found) > 0 {
			r.Fatalf("nothing was changed: %v", found)
		}
		c.writes()
		if found := c.round(); len(found) > 0 {
			r.Fatalf("after the repair: %v", found)
		}
		if w := c.writes(); len(w) > 0 {
			r.Fatalf("after the repair: %q", w)
		}
	})
}

// A key that another program changes repeatedly is repaired ever more rarely, and log and drift report it. Values that keep traffic
// out are repaired every time.
func TestRecheckContested(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	c.allConfigured(c.put(world()...))
	c.writes()
	web, lists1 := kv.DNat44Key("default/a"), kv.InterfaceACLsKey("tap1")
	repaired, contested := map[string]int{}, map[string]string{}
	putOff := false
	theirs := maps.Clone(c.want)
	delete(theirs, web)
	theirs[lists1] = lists("tap1", nil, []string{"rest"})
	for range 20 {
		o := vppagent.New(vppagent.Config{Caller: c.conn})
		if done := o.Commit(t.Context(), &event.Txn{Seq: 1, Resync: event.Full, Values: theirs}); done.Err != nil {
			t.Fatal(done.Err)
		}
		for _, d := range c.round() {
			if d.Repaired && d.Key == lists1 {
				repaired[d.Key]++
			}
			contested[d.Key] = d.Contest
		}
		for _, w := range c.writes() {
			if strings.Contains(w, "nat44_add_del_lb_static_mapping is_add=true") && strings.Contains(w, "default/a ") {
				repaired[web]++
			}
		}
		for _, v := range c.agent.Snapshot().Values() {
			putOff = putOff || v.Key == web && v.State == event.Retrying && strings.Contains(v.Err, "another program changes it: repaired 3 times in ")
		}
	}
	if repaired[lists1] < 20 || repaired[web] < 4 || repaired[web] > 12 || !putOff {
		t.Errorf("20 rounds: repaired %v, put off %t", repaired, putOff)
	}
	for _, key := range []string{web, lists1} {
		if !strings.HasPrefix(contested[key], "another program changes it: repaired ") {
			t.Errorf("%s: %q", key, contested[key])
		}
	}
	for range 20 { // the other program stops
		c.round()
	}
	c.writes()
	if found := c.round(); len(found) > 0 {
		t.Errorf("nobody changes anything any more: %v", found)
	}
	c.quiet("nobody changes anything any more")
}

// Values that keep traffic out are repaired each time they drift, also if nothing stands on them.
func TestRecheckNeverPutsOffAttachments(t *testing.T) {
	const rounds = 12
	c := newClocked(t)
	pods(c.lab)
	c.allConfigured(c.put(accessList("rest", rule(acl.ACL_Rule_DENY, "", "", "")), lists("tap1", []string{"rest"}, []string{"rest"})))
	key, repaired := kv.InterfaceACLsKey("tap1"), 0
	for range rounds {
		detached := c.conn.Do(t.Context(), vpp.Call{Msg: &vppacl.ACLInterfaceSetACLList{SwIfIndex: 1}})[0]
		if detached.Err != nil {
			t.Fatal(detached.Err)
		}
		for _, d := range c.round() {
			if d.Key == key && d.Repaired {
				repaired++
			}
		}
		c.wantList("tap1", "input", "rest")
	}
	if repaired != rounds {
		t.Errorf("%d times detached, %d times repaired", rounds, repaired)
	}
}

// A foreign access list before ours decides first: the repair puts ours in front again.
func TestRecheckForeignInFront(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	c.allConfigured(c.put(world()...))
	c.round()
	before := c.listOf("tap1", "input")
	made := c.conn.Do(t.Context(), vpp.Call{Msg: &vppacl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: "their:own"}})[0]
	if made.Err != nil {
		t.Fatal(made.Err)
	}
	theirs := made.Msg.(*vppacl.ACLAddReplaceReply).ACLIndex
	dump := c.conn.Do(t.Context(), vpp.Call{Dump: true, Msg: &vppacl.ACLInterfaceListDump{SwIfIndex: 1}})[0].Details[0].(*vppacl.ACLInterfaceListDetails)
	front := append([]uint32{theirs}, dump.Acls...)
	set := &vppacl.ACLInterfaceSetACLList{SwIfIndex: 1, Count: uint8(len(front)), NInput: dump.NInput + 1, Acls: front}
	if r := c.conn.Do(t.Context(), vpp.Call{Msg: set})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	if got, want := lines(c.round()), []string{kv.InterfaceACLsKey("tap1") + " changed true"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	c.wantList("tap1", "input", before+" own")
	c.writes()
	if found := c.round(); len(found) > 0 {
		t.Errorf("after the repair: %v", found)
	}
	c.quiet("after the repair")
}

// The agent also finds changes that no dump of records shows: a node that another program took off an arc of an interface, and the setting of
// established flows. It reads the nodes of NAT44 on a pod's interface with its roles.
func TestRecheckProbes(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	c.allConfigured(c.put(world()...))
	c.round()
	before := c.sim.Dump()
	shown := func() string {
		return c.conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: "show interface features tap1"}})[0].Msg.(*vlib.CliInbandReply).Reply +
			c.conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: "show acl-plugin sessions"}})[0].Msg.(*vlib.CliInbandReply).Reply
	}
	well := shown()
	for _, broken := range [][]vpp.Call{
		{off("ip4-unicast", "acl-plugin-in-ip4-fa")},
		{off("ip6-output", "acl-plugin-out-ip6-fa"), off("ip4-unicast", "nat44-ed-classify")},
		{{Msg: &vlib.CliInband{Cmd: "set acl-plugin reclassify-sessions 0"}}},
	} {
		for _, r := range c.conn.Do(t.Context(), broken...) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if shown() == well {
			t.Fatalf("%v changes nothing", broken)
		}
		found := c.round()
		if len(found) != len(broken) || shown() != well || c.sim.Dump() != before {
			t.Errorf("%v: found %v\n%s\nwant\n%s", broken, found, shown(), well)
		}
		for _, d := range found {
			what := event.DriftDisabled
			if d.Kind == "nat44-interface" {
				what = event.DriftChanged
			}
			if d.What != what || !d.Repaired {
				t.Errorf("%v", d)
			}
		}
		c.writes()
		if found := c.round(); len(found) > 0 {
			t.Errorf("after the repair: %v", found)
		}
		c.quiet("after the repair")
	}
}

// A turn probes some interfaces and the next turn others, so that a round probes each of them.
func TestRecheckProbesEachInterface(t *testing.T) {
	const interfaces = 9 // more than the turns of a round that probe
	c := newClocked(t)
	want := []proto.Message{accessList("rest", rule(acl.ACL_Rule_DENY, "", "", ""))}
	for n := range interfaces {
		name := fmt.Sprintf("tap%d", n+1)
		addPod(c.lab, name, fmt.Sprintf("10.1.1.%d", n+2))
		want = append(want, lists(name, []string{"rest"}, nil))
	}
	c.allConfigured(c.put(want...))
	for n := range interfaces {
		broken := &feature.FeatureEnableDisable{SwIfIndex: interface_types.InterfaceIndex(n + 1), ArcName: "ip4-unicast", FeatureName: "acl-plugin-in-ip4-fa"}
		if r := c.conn.Do(t.Context(), vpp.Call{Msg: broken})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		want := []string{kv.InterfaceACLsKey(fmt.Sprintf("tap%d", n+1)) + " disabled true"}
		if got := lines(c.round()); !slices.Equal(got, want) {
			t.Errorf("interface %d: a round found %v, want %v", n+1, got, want)
		}
	}
}

// off takes a node off an arc of tap1.
func off(arc, node string) vpp.Call {
	return vpp.Call{Msg: &feature.FeatureEnableDisable{SwIfIndex: 1, ArcName: arc, FeatureName: node}}
}

// A value that VPP refuses waits for its retry; a recheck does not try it sooner.
func TestRecheckIsPatient(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	tries := 0
	c.sim.Fail(func(name string) (int32, bool) {
		if name == "acl_add_replace" {
			tries++
			return -1, false
		}
		return 0, false
	})
	c.put(world()...)
	for range 20 {
		c.round()
	}
	// 1, 2, 4 … 60 s are some 15 retries of two ACLs in 10 min.
	if tries < 20 || tries > 60 {
		t.Errorf("%d tries in 10 minutes", tries)
	}
}

// Rechecks take at most a fiftieth of VPP's time, but a VPP that hung for a minute once is looked at again after two rounds.
func TestRecheckPauses(t *testing.T) {
	every := 30 * time.Second
	for took, want := range map[time.Duration]time.Duration{
		0: every / 10, 100 * time.Millisecond: 5 * time.Second, time.Second: 50 * time.Second, 2 * time.Second: time.Minute, time.Minute: time.Minute,
	} {
		if got := vppagent.PauseAfter(every, took); got != want {
			t.Errorf("VPP took %s: the agent pauses %s, want %s", took, got, want)
		}
	}
}

// A connection lost during a dump is no drift.
func TestRecheckWhileVPPGoes(t *testing.T) {
	c := newClocked(t)
	pods(c.lab)
	c.allConfigured(c.put(world()...))
	c.sim.Restart()
	for _, d := range c.round() {
		t.Errorf("drift: %v", d)
	}
}
