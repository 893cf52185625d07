package vppagent_test

import (
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestVPPSCTPInterfaceComesBack: an interface is deleted with its filter, and VPP's records still have the filter when the next interface
// gets the index. Packets of that interface nevertheless meet the new filter.
func TestVPPSCTPInterfaceComesBack(t *testing.T) {
	w := &witness{conn: realVPP(t, 0, "")}
	agent := vppagent.New(vppagent.Config{Caller: w})
	commit := func(what string, values kv.Values) {
		t.Helper()
		w.seen = nil
		c := agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: values})
		for _, s := range c.Statuses {
			if c.Err != nil || s.State != event.Configured && s.State != event.Removed {
				t.Fatalf("%s: %v\n%s\nafter\n%s", what, c.Err, statuses(c), w.story())
			}
		}
	}
	cli := func(cmd string) string {
		r := w.conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: cmd}})[0]
		if r.Err != nil {
			t.Fatalf("%s: %v", cmd, r.Err)
		}
		return r.Msg.(*vlib.CliInbandReply).Reply
	}
	want := kv.Values{}
	for _, m := range sctpNode() {
		want.Put(m)
	}
	for round := range 3 {
		commit("put", want)
		features, tables := cli("show interface features loop0"), cli("show inacl type ip4")
		if !strings.Contains(features, "ip4-inacl") || !strings.Contains(features, "ip6-inacl") || !strings.Contains(tables, "loop0") {
			t.Fatalf("round %d: packets do not ask:\n%s\n%s", round, features, tables)
		}
		commit("all gone", kv.Values{})
		if round == 1 {
			agent = vppagent.New(vppagent.Config{Caller: w})
		}
	}
}
