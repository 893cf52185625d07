package vppagent_test

import (
	"path/filepath"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	vppifs "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// podsThatWent are the cases of TestCnatTablesOfAPodThatWent: the next pod has the index of the former one, and no cnat. It gets no sources of cnat's, whether the agent saw the former pod go,
// saw only that another one came, or began later; or the agent saw the former pod go, and another agent began before or after the next pod came.
var podsThatWent = []string{
	"seen", "replaced", "restarted", "seen, restarted", "seen, replaced, restarted", "restarted, in portions", "seen, restarted, in portions", "seen, replaced, restarted, in portions",
}

func TestCnatTablesOfAPodThatWent(t *testing.T) {
	for _, when := range podsThatWent {
		t.Run(when, func(t *testing.T) { inheritTables(t, newLab(t, vppagent.Config{}).conn, when) })
	}
}

// TestVPPCnatTablesOfAPodThatWent is TestCnatTablesOfAPodThatWent on a real VPP.
func TestVPPCnatTablesOfAPodThatWent(t *testing.T) {
	for _, when := range podsThatWent {
		t.Run(when, func(t *testing.T) { inheritTables(t, realVPP(t, 0, ""), when) })
	}
}

func inheritTables(t *testing.T, conn *vpp.Conn, when string) {
	when, portions := strings.CutSuffix(when, ", in portions")
	ask := func(m api.Message) api.Message {
		t.Helper()
		r := conn.Do(t.Context(), vpp.Call{Msg: m})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Msg
	}
	add := func(pod string) interface_types.InterfaceIndex {
		t.Helper()
		index := ask(&vppifs.CreateLoopbackInstance{}).(*vppifs.CreateLoopbackInstanceReply).SwIfIndex
		ask(&vppifs.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: index, Tag: pod})
		return index
	}
	inTables := func() bool {
		t.Helper()
		text := ask(&vlib.CliInband{Cmd: "show cnat snat-policy"}).(*vlib.CliInbandReply).Reply
		return strings.Contains(text, "loop")
	}
	cfg := vppagent.Config{Caller: conn, Journal: filepath.Join(t.TempDir(), "journal")}
	agent := vppagent.New(cfg)
	commit := func(values kv.Values) {
		t.Helper()
		txn := &event.Txn{Resync: event.Full, Values: values}
		if portions {
			rest := make(chan map[string]proto.Message)
			close(rest)
			txn.Rest = rest
		}
		c := agent.Commit(t.Context(), txn)
		for _, s := range c.Statuses {
			if s.State != event.Configured && s.State != event.Removed {
				t.Fatalf("%s %s: %s", s.Key, s.State, s.Err)
			}
		}
	}
	values, policy := kv.Values{}, kv.Values{}
	for _, of := range []kv.Values{values, policy} {
		of.Put(&cnat.SnatPolicy{Kind: cnat.SnatPolicy_KUBERNETES, Ipv6Address: "2001:db8::1"}) // VPP 26.06 has no tables without a policy
	}
	values.Put(&cnat.Interface{Name: "default/one", Ipv6: true, Pod: true, IncludeIpv6: true})
	former := add("default/one")
	commit(values)
	if !inTables() {
		t.Fatal("the pod is in no table")
	}
	ask(&vppifs.DeleteLoopback{SwIfIndex: former})
	if strings.HasPrefix(when, "seen") {
		agent.InterfaceGone(uint32(former))
		agent.Interfaces(t.Context())
	}
	restart := func() {
		commit(policy) // the pod's value has gone, too
		agent = vppagent.New(cfg)
	}
	switch when {
	case "restarted":
		agent = vppagent.New(cfg)
	case "seen, restarted":
		restart()
	}
	if next := add("default/two"); next != former || !inTables() {
		t.Fatalf("the next interface has index %d instead of %d, or VPP forgot the tables", next, former)
	}
	switch when {
	case "seen, replaced, restarted":
		agent = vppagent.New(cfg)
		commit(policy)
	case "restarted", "seen, restarted":
		commit(policy)
	default:
		agent.InterfaceGone(uint32(former))
		agent.Interfaces(t.Context())
	}
	if inTables() {
		t.Error("the next pod is in the tables of the former one")
	}
	commit(policy)
	if c := agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: policy}); c.Writes > 0 {
		t.Errorf("a resync writes:\n%s", statuses(c))
	}
}

// An agent without a journal that looks at VPP before it knows a value sees all that the former one made of it: it neither switches cnat on again nor writes anything.
func TestCnatOfAFormerAgent(t *testing.T) {
	conn := newLab(t, vppagent.Config{}).conn
	for _, m := range []api.Message{&vppifs.CreateLoopbackInstance{}, &vppifs.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: 1, Tag: "default/one"}} {
		if r := conn.Do(t.Context(), vpp.Call{Msg: m})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	values := kv.Values{}
	values.Put(&cnat.Interface{Name: "default/one", Ipv4: true, Pod: true, IncludeIpv4: true})
	for _, former := range []bool{true, false} {
		agent := vppagent.New(vppagent.Config{Caller: conn})
		agent.Commit(t.Context(), &event.Txn{})
		if c := agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: values}); c.Err != nil || (c.Writes > 0) != former {
			t.Errorf("the former agent %v: %v\n%s", former, c.Err, statuses(c))
		}
	}
}
