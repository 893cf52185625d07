package vppagent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vppacl "go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// realVPP starts the VPP named by CONTIV_VPP, with interfaces 1 to n called tap1 to tapn, and returns a connection to it. Without
// the variable it skips the test with that reason (make vpp-test runs it).
func realVPP(t testing.TB, n int, startup string) *vpp.Conn {
	t.Helper()
	bin := os.Getenv("CONTIV_VPP")
	if bin == "" {
		t.Skip("CONTIV_VPP is not set: point it at a vpp binary (24.06 to 26.06, with the nat and acl plugins)")
	}
	if bin == "sim" {
		t.Skip("the simulated VPP serves the package's other tests")
	}
	dir, err := os.MkdirTemp("", "contiv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "api.sock")
	config := filepath.Join(dir, "startup.conf")
	text := fmt.Sprintf(`unix { nodaemon cli-listen %[1]s/cli.sock runtime-dir %[1]s log %[1]s/vpp.log poll-sleep-usec 50 }
api-segment { prefix %[2]s global-size 64M api-size 16M }
socksvr { socket-name %[3]s }
statseg { socket-name %[1]s/stats.sock size 256M page-size 4k }
memory { main-heap-size 1G main-heap-page-size 4k }
buffers { buffers-per-numa 16384 page-size 4k }
plugins { plugin default { disable } plugin nat_plugin.so { enable } plugin acl_plugin.so { enable } plugin abf_plugin.so { enable } plugin vxlan_plugin.so { enable } plugin cnat_plugin.so { enable } plugin policer_plugin.so { enable } }
%[4]s
`, dir, filepath.Base(dir), path, startup)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-c", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	})
	states := make(chan vpp.State, 100)
	conn := vpp.New(vpp.Config{Socket: path, OnState: func(s vpp.State) { states <- s }, Needs: all.Needs(), Silence: -1})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = conn.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	for {
		select {
		case s := <-states:
			if s.Connected {
				for i := range n {
					addLoopback(t, conn, uint32(i))
				}
				return conn
			}
		case <-time.After(20 * time.Second):
			t.Fatal("VPP does not answer")
		}
	}
}

func addLoopback(t testing.TB, conn *vpp.Conn, instance uint32) {
	t.Helper()
	r := conn.Do(context.Background(), vpp.Call{Msg: &interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: instance}})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	idx := r.Msg.(*interfaces.CreateLoopbackInstanceReply).SwIfIndex
	for _, r := range conn.Do(context.Background(),
		vpp.Call{Msg: &interfaces.SwInterfaceSetInterfaceName{SwIfIndex: idx, Name: fmt.Sprintf("tap%d", idx)}},
		vpp.Call{Msg: &interfaces.SwInterfaceSetFlags{SwIfIndex: idx, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}}) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// TestVPPAccessLists checks the order law, and that nothing is written twice, on a real VPP: random policies replace each other
// one after the other.
func TestVPPAccessLists(t *testing.T) {
	w := &witness{conn: realVPP(t, len(orderInterfaces), "")}
	agent := vppagent.New(vppagent.Config{Caller: w})
	want := kv.Values{}
	seq := uint64(0)
	commit := func(r *rapid.T, kind event.ResyncKind, values map[string]proto.Message) {
		seq++
		c := agent.Commit(t.Context(), &event.Txn{Seq: seq, Resync: kind, Values: values})
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		for _, s := range c.Statuses {
			if s.State != event.Configured && s.State != event.Pending && s.State != event.Removed {
				r.Fatalf("%s: %s %s", s.Key, s.State, s.Err)
			}
		}
	}
	look := func() map[place]bool {
		v, err := w.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	rapid.Check(t, func(r *rapid.T) {
		next := policies(r)
		before := look()
		w.seen = nil
		if rapid.Bool().Draw(r, "restart") {
			agent = vppagent.New(vppagent.Config{Caller: w})
			commit(r, event.Full, next)
		} else {
			commit(r, event.NoResync, changes(want, next))
		}
		want = next
		final := look()
		if diff := differ(final, wanted(want, false)); diff != "" {
			r.Fatalf("in the end: %s\n%v", diff, want)
		}
		w.steps(r, before, final)
		w.seen = nil
		agent = vppagent.New(vppagent.Config{Caller: w})
		commit(r, event.Full, next)
		if len(w.seen) > 0 {
			r.Fatalf("restart of the agent:\n%s", w.story())
		}
	})
}

// TestVPPReclassify reads the setting of a real VPP started with either value.
func TestVPPReclassify(t *testing.T) {
	for startup, want := range map[string]vppagent.Reclassify{"": vppagent.ReclassifyOff, "acl-plugin { reclassify sessions 1 }": vppagent.ReclassifyOn} {
		agent := vppagent.New(vppagent.Config{Caller: realVPP(t, 0, startup)})
		agent.Commit(t.Context(), &event.Txn{})
		if got := agent.Snapshot().Reclassify; got != want {
			t.Errorf("startup.conf with %q: %s, want %s", startup, got, want)
		}
	}
}

// TestVPPLongList: an ACL of tens of thousands of rules is made, found again and replaced.
func TestVPPLongList(t *testing.T) {
	w := &witness{conn: realVPP(t, 3, "")}
	m := accessList("set")
	for i := range 30_000 {
		m.Rules = append(m.Rules, rule(acl.ACL_Rule_REFLECT, "tcp", fmt.Sprintf("10.1.%d.%d/32", i/256, i%256), "", 80))
	}
	want := kv.Values{}
	want.Put(m)
	want.Put(lists("tap1", nil, []string{"set"}))
	for range 2 {
		w.seen = nil
		agent := vppagent.New(vppagent.Config{Caller: w})
		c := agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: want})
		for _, s := range c.Statuses {
			if s.State != event.Configured {
				t.Fatalf("%s %s: %s", s.Key, s.State, s.Err)
			}
		}
	}
	if len(w.seen) > 0 {
		t.Fatalf("restart of the agent:\n%s", w.story())
	}
}

// TestVPPListsGoWithTheirInterface: VPP removes the lists of a deleted interface, so that the agent need not remove them before.
func TestVPPListsGoWithTheirInterface(t *testing.T) {
	w := &witness{conn: realVPP(t, 0, "")}
	agent := vppagent.New(vppagent.Config{Caller: w})
	loop := &ligato.Interface{Name: "mine", Type: ligato.Interface_SOFTWARE_LOOPBACK, Enabled: true}
	want := kv.Values{}
	want.Put(loop)
	want.Put(accessList("a", tcp(80)))
	want.Put(lists("mine", []string{"a"}, []string{"a"}))
	for _, values := range []kv.Values{want, {}, want} {
		w.seen = nil
		c := agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: values})
		for _, s := range c.Statuses {
			if s.State != event.Configured && s.State != event.Removed {
				t.Fatalf("%s %s: %s", s.Key, s.State, s.Err)
			}
		}
		if len(values) == 0 && strings.Contains(w.story(), "acl_interface_set_acl_list") {
			t.Errorf("the interface was opened before it went:\n%s", w.story())
		}
	}
	for _, m := range w.conn.Do(t.Context(), vpp.Call{Dump: true, Msg: &vppacl.ACLInterfaceListDump{SwIfIndex: 1}})[0].Details {
		if n := m.(*vppacl.ACLInterfaceListDetails).Count; n != 2 {
			t.Errorf("the interface made anew has %d ACLs", n)
		}
	}
}
