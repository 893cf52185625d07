package vppagent_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/memif"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func memifOn(name, socket string, id uint32) *interfaces.Interface {
	return &interfaces.Interface{
		Name: name, Type: interfaces.Interface_MEMIF, Enabled: true, PhysAddress: "02:fe:00:00:00:07",
		Link: &interfaces.Interface_Memif{Memif: &interfaces.MemifLink{Id: id, Master: true, SocketFilename: socket}},
	}
}

// memifSockets fails unless VPP has these sockets.
func (l *lab) memifSockets(what string, want ...string) {
	l.t.Helper()
	var got []string
	for line := range strings.Lines(l.sim.Dump()) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), "memif-socket "); ok {
			got = append(got, name[strings.Index(name, " ")+1:])
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		l.t.Errorf("%s: sockets %q, want %q", what, got, want)
	}
}

// wantAlone makes these the only wanted values.
func (l *lab) wantAlone(all ...proto.Message) *event.Committed {
	l.t.Helper()
	l.want = kv.Values{}
	for _, m := range all {
		l.want.Put(m)
	}
	return l.resync()
}

// TestMemifSockets: VPP has a socket as long as an interface on it, also after a restart of the agent, and after a move to another socket.
func TestMemifSockets(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	sockets := l.memifSockets
	put := func(all ...proto.Message) {
		t.Helper()
		l.allConfigured(l.wantAlone(all...))
	}
	put(memifOn("a", "/run/one.sock", 0), memifOn("b", "/run/one.sock", 1), memifOn("c", "/run/two.sock", 0))
	sockets("three interfaces", "/run/one.sock", "/run/two.sock")
	put(memifOn("b", "/run/one.sock", 1), memifOn("c", "/run/two.sock", 0))
	sockets("one of two is removed", "/run/one.sock", "/run/two.sock")
	l.restartAgent()
	put(memifOn("c", "/run/three.sock", 0))
	sockets("the last one is removed by another agent, and an interface moves", "/run/three.sock")
	put()
	sockets("no interface")
}

// TestMemifSocketsOfKilledAgent ends the agent after each of the writes that lead from one state to another. The next agent wants a third state, and
// VPP has the sockets of that state alone. A foreign socket stays.
func TestMemifSocketsOfKilledAgent(t *testing.T) {
	one, two := memifOn("a", "/run/one.sock", 0), memifOn("a", "/run/two.sock", 0)
	also := memifOn("b", "/run/one.sock", 1) // a second interface on the socket
	states := []struct {
		name    string
		values  []proto.Message
		sockets []string
	}{
		{"nothing", nil, []string{"/run/foreign.sock"}},
		{"one", []proto.Message{one}, []string{"/run/foreign.sock", "/run/one.sock"}},
		{"two", []proto.Message{two}, []string{"/run/foreign.sock", "/run/two.sock"}},
		{"one twice", []proto.Message{one, also}, []string{"/run/foreign.sock", "/run/one.sock"}},
	}
	foreign, kills := &memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: 1, SocketFilename: "/run/foreign.sock"}, 0
	for _, first := range states {
		for turn, second := range states {
			for i, third := range states {
				if (i+turn)%pace.Every(4) != 0 {
					continue
				}
				for n, cut := 1, true; cut; n++ {
					dir := t.TempDir()
					l := newLab(t, vppagent.Config{Journal: filepath.Join(dir, "journal")})
					if r := l.conn.Do(t.Context(), vpp.Call{Msg: foreign})[0]; r.Err != nil {
						t.Fatal(r.Err)
					}
					l.allConfigured(l.wantAlone(first.values...))
					copied := filepath.Join(dir, "copied")
					done := l.cutAfter(n, copied)
					l.wantAlone(second.values...)
					if cut = done(); cut {
						kills++
						l.cfg.Journal = copied
						l.restartAgent()
					}
					l.allConfigured(l.wantAlone(third.values...))
					l.memifSockets(fmt.Sprintf("from %s to %s, cut after %d: %v, then %s", first.name, second.name, n, cut, third.name), third.sockets...)
					l.writes()
					l.allConfigured(l.resync())
					l.quiet("resync")
				}
			}
		}
	}
	if kills < pace.Fewer(100, 4) {
		t.Errorf("%d kills", kills)
	}
}

// TestMemifSocketsOfRefusedRequests: VPP refuses to make an interface on a socket that it has made, or to forget the socket of a deleted interface. The
// agent removes the socket when the interface is not wanted any more, or when VPP forgets sockets again.
func TestMemifSocketsOfRefusedRequests(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	refuse := func(request string) {
		l.sim.Fail(func(name string) (retval int32, lost bool) {
			if name == request {
				retval = -1
			}
			return retval, false
		})
	}
	refuse("memif_create_v2")
	l.wantAlone(memifOn("a", "/run/one.sock", 0))
	l.memifSockets("the interface is refused", "/run/one.sock")
	l.wantAlone()
	l.memifSockets("the refused interface is not wanted any more")
	l.sim.Fail(nil)
	l.allConfigured(l.wantAlone(memifOn("a", "/run/one.sock", 0), memifOn("b", "/run/two.sock", 0)))
	refuse("memif_socket_filename_add_del_v2")
	l.wantAlone(memifOn("a", "/run/one.sock", 0))
	l.memifSockets("the removal of the socket is refused", "/run/one.sock", "/run/two.sock")
	l.sim.Fail(nil)
	l.allConfigured(l.resync())
	l.memifSockets("the removal is tried again", "/run/one.sock")
}
