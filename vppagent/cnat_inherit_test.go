package vppagent_test

import (
	"path/filepath"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	vppifs "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestCnatTablesOfAPodThatWent: the next pod has the index of the former one, and no cnat. It gets no sources of cnat's, whether the agent saw the former pod go,
// saw only that another one came, or began later.
func TestCnatTablesOfAPodThatWent(t *testing.T) {
	for _, when := range []string{"seen", "replaced", "restarted"} {
		t.Run(when, func(t *testing.T) { inheritTables(t, newLab(t, vppagent.Config{}).conn, when) })
	}
}

// TestVPPCnatTablesOfAPodThatWent is TestCnatTablesOfAPodThatWent on a real VPP.
func TestVPPCnatTablesOfAPodThatWent(t *testing.T) {
	for _, when := range []string{"seen", "replaced", "restarted"} {
		t.Run(when, func(t *testing.T) { inheritTables(t, realVPP(t, 0, ""), when) })
	}
}

func inheritTables(t *testing.T, conn *vpp.Conn, when string) {
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
		c := agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: values})
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
	switch when {
	case "seen":
		agent.InterfaceGone(uint32(former))
		agent.Interfaces(t.Context())
	case "restarted":
		agent = vppagent.New(cfg)
	}
	if next := add("default/two"); next != former || !inTables() {
		t.Fatalf("the next interface has index %d instead of %d, or VPP forgot the tables", next, former)
	}
	if when != "restarted" {
		agent.InterfaceGone(uint32(former))
		agent.Interfaces(t.Context())
	} else {
		commit(policy)
	}
	if inTables() {
		t.Error("the next pod is in the tables of the former one")
	}
	commit(policy)
	if c := agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: policy}); c.Writes > 0 {
		t.Errorf("a resync writes:\n%s", statuses(c))
	}
}
