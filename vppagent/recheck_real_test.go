package vppagent_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vlib"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/keyed"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// counted keeps the names of the requests that change VPP.
type counted struct {
	conn   *vpp.Conn
	writes []string
}

func (c *counted) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	for _, call := range calls {
		if name := call.Msg.GetMessageName(); sim.Writes(name) {
			c.writes = append(c.writes, name)
		}
	}
	return c.conn.Do(ctx, calls...)
}

// TestVPPRecheck does on a real VPP what TestRecheckRepairs does on the sim.
func TestVPPRecheck(t *testing.T) {
	conn := realVPP(t, 2, "")
	ours := &counted{conn: conn}
	now := time.Unix(1_700_000_000, 0)
	a := vppagent.New(vppagent.Config{Caller: ours, Recheck: roundTime, Now: func() time.Time { return now }})
	want := keyed.Values{}
	for _, m := range world() {
		want.Put(m)
	}
	commit := func(a *vppagent.Agent, kind event.ResyncKind, values map[string]proto.Message) {
		t.Helper()
		if c := a.Commit(t.Context(), &event.Txn{Resync: kind, Values: values}); c.Err != nil {
			t.Fatal(c.Err)
		} else {
			for _, s := range c.Statuses {
				if s.State != event.Configured && s.State != event.Removed {
					t.Fatal(statuses(c))
				}
			}
		}
	}
	round := func() (found []event.Drift) {
		for range int(roundTime / time.Second) {
			now = now.Add(time.Second)
			for _, e := range a.Step(t.Context(), nil) {
				if done, ok := e.(*event.Committed); ok {
					if done.Err != nil {
						t.Fatal(done.Err)
					}
					found = append(found, done.Drift...)
				}
			}
		}
		return found
	}
	commit(a, event.Full, want)
	if r := conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: "set acl-plugin reclassify-sessions 1"}})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	a.Connected(vpp.State{Connected: true, Generation: 1})
	round() // sees the setting
	shown := func() string {
		return conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: "show interface features tap1"}})[0].Msg.(*vlib.CliInbandReply).Reply
	}
	well := shown()
	for _, broken := range [][]vpp.Call{
		{off("ip4-unicast", "acl-plugin-in-ip4-fa")},
		{off("ip6-output", "acl-plugin-out-ip6-fa"), off("ip4-unicast", "nat44-ed-classify")},
		{{Msg: &vlib.CliInband{Cmd: "set acl-plugin reclassify-sessions 0"}}},
	} {
		for _, r := range conn.Do(t.Context(), broken...) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if found := round(); len(found) != len(broken) || !found[0].Repaired || found[0].What != event.DriftDisabled || shown() != well {
			t.Errorf("%v: found %v\n%s\nwant\n%s", broken, found, shown(), well)
		}
	}
	for range 2 {
		ours.writes = nil
		if found := round(); len(found) > 0 || len(ours.writes) > 0 {
			t.Fatalf("an unchanged VPP: %q, %v", ours.writes, found)
		}
		theirs := map[string]proto.Message{
			keyed.DNat44Key("default/a"): nil, keyed.DNat44Key("default/b"): dnat("default/b", "10.96.0.2", 80, "10.1.1.9:8080"), keyed.DNat44Key("default/c"): nil,
			keyed.InterfaceACLsKey("tap1"):                               lists("tap1", []string{"rest", "web"}, nil),
			keyed.Key(&nat.Nat44Interface{Name: "tap2"}):                 nil,
			keyed.Key(&contivl3.RejectRoute{DstNetwork: "10.96.0.9/32"}): nil, keyed.Key(translated()): nil,
		}
		other := vppagent.New(vppagent.Config{Caller: conn})
		commit(other, event.Full, want)
		commit(other, event.NoResync, theirs)
		found := round()
		var keys []string
		for _, d := range found {
			if keys = append(keys, d.Key); !d.Repaired {
				t.Error(d)
			}
		}
		slices.Sort(keys)
		if all := slices.Sorted(maps.Keys(theirs)); !slices.Equal(keys, all) {
			t.Errorf("found\n%s\nwant\n%s", strings.Join(keys, "\n"), strings.Join(all, "\n"))
		}
	}
}
