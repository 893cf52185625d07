package vppagent_test

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vlib"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// counted records the names of the requests that change VPP.
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

// TestVPPRecheck is TestRecheckRepairs on a real VPP.
func TestVPPRecheck(t *testing.T) {
	dir, err := os.MkdirTemp("", "recheck") // for this VPP alone: its command line is used
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	conn := realVPP(t, 2, "")
	ours := &counted{conn: conn}
	now := time.Unix(1_700_000_000, 0)
	a := vppagent.New(vppagent.Config{Caller: ours, Recheck: roundTime, Now: func() time.Time { return now }})
	want := kv.Values{}
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
	defer func() { wipedLookups(t, conn, round) }() // nothing restores them
	for range 2 {
		ours.writes = nil
		if found := round(); len(found) > 0 || len(ours.writes) > 0 {
			t.Fatalf("an unchanged VPP: %q, %v", ours.writes, found)
		}
		theirs := map[string]proto.Message{
			kv.DNat44Key("default/a"): nil, kv.DNat44Key("default/b"): dnat("default/b", "10.96.0.2", 80, "10.1.1.9:8080"), kv.DNat44Key("default/c"): nil,
			kv.InterfaceACLsKey("tap1"):                               lists("tap1", []string{"rest", "web"}, nil),
			kv.Key(&nat.Nat44Interface{Name: "tap2"}):                 nil,
			kv.Key(&contivl3.RejectRoute{DstNetwork: "10.96.0.9/32"}): nil, kv.Key(translated()): nil,
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

// wipedLookups runs a command that the guard refuses, at VPP's command line, and expects the agent to detect its effect.
func wipedLookups(t *testing.T, conn *vpp.Conn, round func() []event.Drift) {
	t.Helper()
	r := conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: "show nat44 hash tables"}})[0]
	before := r.Msg.(*vlib.CliInbandReply).Reply
	if found := append(round(), round()...); len(found) > 0 {
		t.Errorf("before: %v", found)
	}
	sockets, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "contiv*", "cli.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatal("no command line", err)
	}
	cli, err := net.Dial("unix", sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	if _, err := cli.Write([]byte("set nat44 session limit 10000\n")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		r = conn.Do(t.Context(), vpp.Call{Msg: &vlib.CliInband{Cmd: "show nat44 hash tables"}})[0]
		if r.Msg.(*vlib.CliInbandReply).Reply != before {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	found := append(append(round(), round()...), round()...)
	if len(found) < 1 || found[0].Key != vppagent.LookupsKey || found[0].Repaired || !strings.Contains(found[0].Err, "3 mappings and finds none") {
		t.Errorf("lookups are wiped, found %v:\n%s", found, r.Msg.(*vlib.CliInbandReply).Reply)
	}
}
