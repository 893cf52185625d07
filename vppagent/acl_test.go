package vppagent_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func accessList(name string, rules ...*acl.ACL_Rule) *acl.ACL {
	return &acl.ACL{Name: name, Rules: rules}
}

// attach adds interfaces to m.
func attach(m *acl.ACL, ingress, egress []string) *acl.ACL {
	m.Interfaces = &acl.ACL_Interfaces{Ingress: ingress, Egress: egress}
	return m
}

// rule matches TCP or UDP to ports (none: all), or everything if proto is "".
func rule(action acl.ACL_Rule_Action, proto, src, dst string, ports ...uint32) *acl.ACL_Rule {
	ip := &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{SourceNetwork: src, DestinationNetwork: dst}}
	from, to := &acl.ACL_Rule_IpRule_PortRange{UpperPort: 65535}, &acl.ACL_Rule_IpRule_PortRange{UpperPort: 65535}
	if len(ports) > 0 {
		to.LowerPort, to.UpperPort = ports[0], ports[len(ports)-1]
	}
	switch proto {
	case "tcp":
		ip.Tcp = &acl.ACL_Rule_IpRule_Tcp{SourcePortRange: from, DestinationPortRange: to}
	case "udp":
		ip.Udp = &acl.ACL_Rule_IpRule_Udp{SourcePortRange: from, DestinationPortRange: to}
	}
	return &acl.ACL_Rule{Action: action, IpRule: ip}
}

func lists(iface string, input, output []string) *contivacl.InterfaceACLs {
	return &contivacl.InterfaceACLs{Interface: iface, Input: input, Output: output}
}

// refuser is a VPP that refuses some requests; a refused one does not reach it.
type refuser struct {
	vppagent.Caller
	refuses func(api.Message) bool
}

func (r *refuser) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	out := make([]vpp.Reply, len(calls))
	for i, c := range calls {
		if r.refuses != nil && r.refuses(c.Msg) {
			out[i].Err = &vpp.Retval{Message: c.Msg.GetMessageName(), Code: -1}
		} else {
			out[i] = r.Caller.Do(ctx, c)[0]
		}
	}
	return out
}

// aclLab is a lab with three interfaces, and a VPP that refuses to make or change ACLs whose tag ends with one of refused.
func aclLab(t *testing.T) (l *lab, refused *[]string) {
	t.Helper()
	now := time.Unix(1_700_000_000, 0)
	l = newLab(t, vppagent.Config{Now: func() time.Time { now = now.Add(time.Minute); return now }})
	for i, name := range orderInterfaces {
		addPod(l, name, fmt.Sprintf("10.1.1.%d", 2+i))
	}
	refused = new([]string)
	l.cfg.Caller = &refuser{l.conn, func(m api.Message) bool {
		a, ok := m.(*vppacl.ACLAddReplace)
		return ok && slices.ContainsFunc(*refused, func(name string) bool { return strings.HasSuffix(a.Tag, ":"+name) })
	}}
	l.agent = vppagent.New(l.cfg)
	l.writes()
	return l, refused
}

// listOf returns the list of an interface in one direction, without fingerprints.
func (l *lab) listOf(iface, direction string) string {
	prefix := "acl-list " + iface + " " + direction + " "
	for line := range strings.Lines(l.sim.Dump()) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			var names []string
			for _, tag := range strings.Fields(rest) {
				tag = strings.Trim(tag, `"`)
				names = append(names, tag[strings.LastIndexByte(tag, ':')+1:])
			}
			return strings.Join(names, " ")
		}
	}
	return ""
}

func (l *lab) wantList(iface, direction, want string) {
	l.t.Helper()
	if got := l.listOf(iface, direction); got != want {
		l.t.Errorf("%s %s: %q, want %q\n%s", iface, direction, got, want, l.sim.Dump())
	}
}

func (l *lab) wantState(key string, want event.State) string {
	l.t.Helper()
	for _, s := range l.agent.Snapshot().Values() {
		if s.Key == key {
			if s.State != want {
				l.t.Errorf("%s is %s, want %s: %s %s", key, s.State, want, s.Err, s.Wait)
			}
			return s.Err
		}
	}
	l.t.Errorf("no status of %s", key)
	return ""
}

// names returns the first words of requests.
func names(writes []string) string {
	var out []string
	for _, w := range writes {
		out = append(out, strings.Fields(w)[0])
	}
	return strings.Join(out, " ")
}

func tcp(port uint32) *acl.ACL_Rule  { return rule(acl.ACL_Rule_REFLECT, "tcp", "", "", port) }
func deny(port uint32) *acl.ACL_Rule { return rule(acl.ACL_Rule_DENY, "tcp", "", "", port) }

// TestRefusedACL: an interface keeps its lists; a direction without lists denies everything.
func TestRefusedACL(t *testing.T) {
	l, refused := aclLab(t)
	l.allConfigured(l.put(accessList("a", tcp(80)), accessList("b", tcp(90)), lists("tap1", nil, []string{"a", "b"})))
	*refused = []string{"a", "new"}
	l.writes()
	l.put(accessList("a", deny(80)), accessList("b", tcp(91)), accessList("new", tcp(1)),
		lists("tap1", []string{"new"}, []string{"b", "a"}), lists("tap2", nil, []string{"b"}), lists("tap3", []string{"b"}, []string{"new"}))
	t.Log(strings.Join(l.writes(), "\n"))
	l.wantList("tap1", "output", "a b") // unchanged, even its ACL
	l.wantList("tap1", "input", "all")
	l.wantList("tap2", "output", "b")
	l.wantList("tap3", "input", "all")
	l.wantList("tap3", "output", "all")
	if !strings.Contains(l.sim.Dump(), "dport 90") || strings.Count(l.sim.Dump(), ":b\"\n  permit") != 2 {
		t.Errorf("tap1 has to keep the old b, and tap2 to have the new one\n%s", l.sim.Dump())
	}
	if note := l.wantState(kv.InterfaceACLsKey("tap1"), event.Pending); note != "input denied altogether, output as it was" {
		t.Errorf("note %q", note)
	}
	l.wantState(kv.ACLKey("a"), event.Retrying)
	*refused = nil
	l.step()
	l.wantList("tap1", "output", "b a")
	l.wantList("tap1", "input", "new")
	l.wantList("tap3", "output", "new")
	l.wantState(kv.InterfaceACLsKey("tap1"), event.Configured)
	if strings.Contains(l.sim.Dump(), "dport 90") {
		t.Errorf("the old b is still there\n%s", l.sim.Dump())
	}
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
}

// TestInterimACLIsLeftOut: an interface gets its other lists without an interim one that VPP refuses, and that one later. A direction that has only such
// a list denies everything.
func TestInterimACLIsLeftOut(t *testing.T) {
	l, refused := aclLab(t)
	l.allConfigured(l.put(accessList("a", tcp(80)), accessList("b", tcp(90)), lists("tap1", []string{"a"}, []string{"a"})))
	*refused = []string{"interim/x"}
	x := kv.InterimACL("x")
	l.put(accessList(x, tcp(81)), lists("tap1", []string{x, "b"}, []string{x}))
	l.wantList("tap1", "input", "b")
	l.wantList("tap1", "output", "all")
	l.wantState(kv.InterfaceACLsKey("tap1"), event.Pending)
	*refused = nil
	l.step()
	l.wantList("tap1", "input", "interim/x b")
	l.wantList("tap1", "output", "interim/x")
	l.wantState(kv.InterfaceACLsKey("tap1"), event.Configured)
	l.allConfigured(l.put(lists("tap1", []string{"b"}, []string{"b"})))
	l.allConfigured(l.del(kv.ACLKey(x)))
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
}

// TestMissingACL: an interface that names an unwanted or invalid ACL denies everything in that direction.
func TestMissingACL(t *testing.T) {
	l, _ := aclLab(t)
	a := accessList("a", tcp(80))
	l.put(a, lists("tap1", []string{"a"}, []string{"a", "later"}))
	l.wantList("tap1", "input", "a")
	l.wantList("tap1", "output", "all")
	l.wantState(kv.InterfaceACLsKey("tap1"), event.Pending)
	l.allConfigured(l.put(accessList("later", tcp(90))))
	l.wantList("tap1", "output", "a later")
	// It becomes invalid, and so do the places in lists that it asked for.
	bad := attach(accessList("later", rule(acl.ACL_Rule_DENY, "", "10.0.0.1/24", "")), []string{"tap2"}, nil)
	l.put(bad)
	if err := l.wantState(kv.ACLKey("later"), event.Invalid); !strings.Contains(err, "rules[0].ip_rule.ip.source_network: 10.0.0.1/24 has bits set") {
		t.Errorf("error %q", err)
	}
	l.wantList("tap1", "output", "all")
	l.wantList("tap2", "input", "all")
	l.wantState(kv.InterfaceACLsKey("tap2"), event.Pending)
	l.put(lists("tap1", []string{"a", "a"}, []string{"a"}))
	l.wantList("tap1", "input", "all")
	if err := l.wantState(kv.InterfaceACLsKey("tap1"), event.Invalid); !strings.Contains(err, `input[1]: "a" twice`) {
		t.Errorf("error %q", err)
	}
	l.del(kv.ACLKey("later"), kv.ACLKey("a"), kv.InterfaceACLsKey("tap1"))
	if d := l.sim.Dump(); strings.Contains(d, "acl") {
		t.Errorf("something is left:\n%s", d)
	}
}

// TestOrderOfMessages: one message if that suffices, second ACLs if several messages would tear.
func TestOrderOfMessages(t *testing.T) {
	for _, tc := range []struct {
		name string
		put  []proto.Message
		want string
	}{
		{"one ACL of three interfaces", []proto.Message{accessList("a", tcp(81))}, "acl_add_replace"},
		{"two ACLs that only gain", []proto.Message{accessList("a", tcp(80), tcp(81)), accessList("b", tcp(90), tcp(91))}, "acl_add_replace acl_add_replace"},
		{"two ACLs that only lose", []proto.Message{accessList("a", deny(1), tcp(80)), accessList("b", deny(2), tcp(90))}, "acl_add_replace acl_add_replace"},
		{
			"one gains, one loses",
			[]proto.Message{accessList("a", tcp(80), tcp(81)), accessList("b")},
			"acl_add_replace acl_add_replace" + strings.Repeat(" acl_interface_set_acl_list", 3) + " acl_del acl_del",
		},
		{"order only", []proto.Message{lists("tap1", nil, []string{"b", "a"})}, "acl_interface_set_acl_list"},
		{
			"order and an ACL",
			[]proto.Message{lists("tap1", nil, []string{"b", "a"}), accessList("a", tcp(81))},
			"acl_add_replace" + strings.Repeat(" acl_interface_set_acl_list", 3) + " acl_del",
		},
		{
			"a list that gains an ACL, and one that gains",
			[]proto.Message{lists("tap1", nil, []string{"c", "a", "b"}), accessList("c", tcp(1)), accessList("a", tcp(80), tcp(81))},
			"acl_add_replace acl_add_replace acl_interface_set_acl_list",
		},
		{
			"a list that gains an ACL, and one that loses",
			[]proto.Message{lists("tap1", nil, []string{"c", "a", "b"}), accessList("c", tcp(1)), accessList("a")},
			"acl_add_replace acl_add_replace" + strings.Repeat(" acl_interface_set_acl_list", 3) + " acl_del",
		},
		{
			"a list that loses an ACL, and one that loses",
			[]proto.Message{lists("tap1", nil, []string{"a"}), accessList("a")},
			"acl_add_replace acl_interface_set_acl_list",
		},
		{"a new ACL", []proto.Message{accessList("c", tcp(1)), lists("tap1", nil, []string{"a", "b", "c"})}, "acl_add_replace acl_interface_set_acl_list"},
		{"an ACL nobody has", []proto.Message{accessList("a", tcp(81)), accessList("c", tcp(1))}, "acl_add_replace acl_add_replace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, _ := aclLab(t)
			l.allConfigured(l.put(accessList("a", tcp(80)), accessList("b", tcp(90)),
				lists("tap1", nil, []string{"a", "b"}), lists("tap2", nil, []string{"a", "b"}), lists("tap3", nil, []string{"a", "b"})))
			l.writes()
			v := kv.Values{}
			for _, m := range tc.put {
				v.Put(m)
			}
			plan, err := l.agent.Plan(t.Context(), &event.Txn{Values: v})
			if err != nil {
				t.Fatal(err)
			}
			l.quiet("plan")
			l.allConfigured(l.put(tc.put...))
			if got := names(l.writes()); got != tc.want {
				t.Errorf("writes %s, want %s\nplanned\n%s", got, tc.want, plan)
			}
			l.allConfigured(l.resync())
			l.quiet("resync")
		})
	}
}

// TestRefusedRemovalOfTheSameRules: VPP refuses the switch to second ACLs, then the rules change back, and VPP refuses the removal of the first
// ACLs, which have the same rules as the third ones. The retry removes the ACLs that no list has.
func TestRefusedRemovalOfTheSameRules(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := newLab(t, vppagent.Config{Now: func() time.Time { return now }})
	addPod(l, "tap1", "10.1.1.2")
	refuse := func(message string) {
		l.sim.Fail(func(name string) (int32, bool) {
			if name == message {
				return -1, false
			}
			return 0, false
		})
	}
	l.allConfigured(l.put(accessList("a", tcp(80)), accessList("b", tcp(90)), lists("tap1", nil, []string{"a", "b"})))
	before := canonical(l.sim.Dump())
	refuse("acl_interface_set_acl_list")
	l.put(accessList("a", tcp(80), tcp(81)), accessList("b"))
	refuse("acl_del")
	l.put(accessList("a", tcp(80)), accessList("b", tcp(90)))
	if n := strings.Count(l.sim.Dump(), "acl \"ca1:a:"); n <= 2 {
		t.Fatalf("VPP has %d ACLs: nothing is left to remove", n)
	}
	l.sim.Fail(nil)
	now = now.Add(2 * time.Minute)
	l.step()
	if got := canonical(l.sim.Dump()); got != before {
		t.Errorf("VPP has\n%s\nwant\n%s", got, before)
	}
}

// TestForeignACLs: foreign ACLs stay behind ours, even those attached since the last dump.
func TestForeignACLs(t *testing.T) {
	l, _ := aclLab(t)
	foreign := func() uint32 {
		r := l.conn.Do(t.Context(), vpp.Call{Msg: &vppacl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: "their:own"}})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Msg.(*vppacl.ACLAddReplaceReply).ACLIndex
	}
	set := func(idx uint32, acls ...uint32) {
		m := &vppacl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(idx), Count: uint8(len(acls)), Acls: acls}
		if r := l.conn.Do(t.Context(), vpp.Call{Msg: m})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	theirs := foreign()
	set(1, theirs)
	l.allConfigured(l.put(accessList("a", tcp(80)), lists("tap1", nil, []string{"a"}), lists("tap2", nil, []string{"a"})))
	l.wantList("tap1", "output", "a own")
	if f := strings.Join(l.agent.Snapshot().Foreign, "\n"); !strings.Contains(f, `tag "their:own"`) || !strings.Contains(f, "interface tap1: acls input [] output [0]") {
		t.Errorf("foreign: %s", f)
	}
	second := foreign()
	set(2, 1, second) // 1 is a
	l.allConfigured(l.put(accessList("b", tcp(81)), lists("tap2", nil, []string{"b", "a"})))
	l.wantList("tap2", "output", "b a own")
	l.allConfigured(l.del(kv.InterfaceACLsKey("tap1"), kv.InterfaceACLsKey("tap2"), kv.ACLKey("a"), kv.ACLKey("b")))
	l.wantList("tap1", "output", "own")
	l.wantList("tap2", "output", "own")
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
}

// TestListsUnderTwoNames: one value decides about an interface, whatever other names it has.
func TestListsUnderTwoNames(t *testing.T) {
	l, _ := aclLab(t)
	tag := "default/tap1"
	l.put(accessList("a", tcp(80)), accessList("b", tcp(81)), lists("tap1", []string{"a"}, nil), lists(tag, []string{"b"}, nil))
	l.wantList("tap1", "input", "a")
	l.wantState(kv.InterfaceACLsKey("tap1"), event.Configured)
	if err := l.wantState(kv.InterfaceACLsKey(tag), event.Invalid); !strings.Contains(err, "by another name") {
		t.Errorf("error %q", err)
	}
	l.writes()
	for range 3 {
		l.restartAgent()
		l.resync()
		l.quiet("restart of the agent")
	}
	l.del(kv.InterfaceACLsKey(tag))
	l.quiet("removed where it has no say")
	l.wantList("tap1", "input", "a")
	l.put(lists(tag, []string{"b"}, nil))
	l.del(kv.InterfaceACLsKey("tap1"))
	l.resync()
	l.wantList("tap1", "input", "b")
	l.wantState(kv.InterfaceACLsKey(tag), event.Configured)
}

// TestListsGoWithTheirInterface: the agent does not remove lists from an interface before it deletes the interface, which would open it.
func TestListsGoWithTheirInterface(t *testing.T) {
	l, _ := aclLab(t)
	tap := func(host string) *interfaces.Interface {
		return &interfaces.Interface{
			Name: "mine", Type: interfaces.Interface_TAP, Enabled: true, Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{HostIfName: host}},
		}
	}
	l.allConfigured(l.put(tap("vpp1"), accessList("a", tcp(80)), lists("mine", []string{"a"}, []string{"a"})))
	l.writes()
	l.allConfigured(l.put(tap("vpp2"))) // recreated
	if got, want := names(l.writes()), "tap_delete_v2 tap_create_v3 sw_interface_set_flags acl_interface_set_acl_list acl_interface_set_etype_whitelist acl_interface_set_acl_list"; got != want {
		t.Errorf("another link: %s, want %s", got, want)
	}
	l.wantList("tap0", "input", "a")
	l.allConfigured(l.del(kv.InterfaceKey("mine"), kv.InterfaceACLsKey("mine"), kv.ACLKey("a")))
	if got, want := names(l.writes()), "tap_delete_v2 acl_del acl_del"; got != want {
		t.Errorf("removed: %s, want %s", got, want)
	}
	l.quiet("afterwards")
	l.allConfigured(l.resync())
	l.quiet("resync")
}

// TestDiesBetween: an agent that ends after any number of requests leaves no state that its successor does not finish or undo.
func TestDiesBetween(t *testing.T) {
	for _, undo := range []bool{false, true} {
		for n := 0; diesAfter(t, n, undo); n++ {
		}
	}
}

// diesAfter ends an agent after n writes, and reports whether it wanted more.
func diesAfter(t *testing.T, n int, undo bool) bool {
	l, _ := aclLab(t)
	l.allConfigured(l.put(accessList("a", tcp(80)), accessList("b", tcp(90)), lists("tap1", nil, []string{"a", "b"}), lists("tap2", []string{"a"}, nil)))
	before := maps.Clone(l.want)
	left := n
	l.cfg.Caller = &refuser{l.conn, func(m api.Message) bool {
		if sim.Writes(m.GetMessageName()) {
			left--
		}
		return left < 0
	}}
	l.agent = vppagent.New(l.cfg)
	l.want.Put(accessList("a", tcp(80), tcp(81)))
	l.want.Put(accessList("b"))
	l.resync()
	if undo {
		l.want = before
	}
	l.restartAgent()
	l.allConfigured(l.resync())
	l.wantList("tap1", "output", "a b")
	if d := l.sim.Dump(); strings.Count(d, "acl \"") != 3 || strings.Contains(d, "dport 81") == undo {
		t.Fatalf("after %d requests:\n%s", n, d)
	}
	l.writes()
	l.restartAgent()
	l.allConfigured(l.resync())
	l.quiet("restart of the agent")
	return left < 0
}

// TestReclassify: the agent asks on every connection, and logs if flows outlive their policy.
func TestReclassify(t *testing.T) {
	var log strings.Builder
	l := newLab(t, vppagent.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if got := l.agent.Snapshot().Reclassify; got != vppagent.ReclassifyUnknown {
		t.Errorf("before a connection: %s", got)
	}
	set := func(n string) {
		if r := l.conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: "set acl-plugin reclassify-sessions " + n}})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	set("0")
	l.agent.Connected(vpp.State{Connected: true, Generation: 1})
	l.step()
	if got := l.agent.Snapshot().Reclassify; got != vppagent.ReclassifyOff || !strings.Contains(log.String(), "reclassify sessions 1") {
		t.Errorf("%s, %s", got, &log)
	}
	log.Reset()
	set("1")
	l.agent.Connected(vpp.State{Connected: true, Generation: 2})
	l.step()
	if got := l.agent.Snapshot().Reclassify; got != vppagent.ReclassifyOn || strings.Contains(log.String(), "reclassify") {
		t.Errorf("%s, %s", got, &log)
	}
}

// Plan works on a copy of the agent. The copy knows that an access list that does not compile still names its interfaces, so Plan does not
// announce that they open.
func TestPlanKeepsInterfacesOfBrokenListsClosed(t *testing.T) {
	l, _ := aclLab(t)
	l.allConfigured(l.put(attach(accessList("web", tcp(80)), []string{"tap1"}, nil)))
	l.put(attach(accessList("web", rule(acl.ACL_Rule_DENY, "tcp", "10.0.0.1/24", "")), []string{"tap1"}, nil))
	l.wantState(kv.ACLKey("web"), event.Invalid)
	l.wantList("tap1", "input", "all")
	plan, err := l.agent.Plan(t.Context(), &event.Txn{Resync: event.Downstream})
	if err != nil || strings.Contains(plan.String(), "delete ") {
		t.Errorf("%v: Plan announces\n%s", err, plan)
	}
}
