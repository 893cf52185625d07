package vppagent_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func memifOn(name, socket string, id uint32) *interfaces.Interface {
	return &interfaces.Interface{
		Name: name, Type: interfaces.Interface_MEMIF, Enabled: true, PhysAddress: "02:fe:00:00:00:07",
		Link: &interfaces.Interface_Memif{Memif: &interfaces.MemifLink{Id: id, Master: true, SocketFilename: socket}},
	}
}

// TestMemifSockets: VPP has a socket as long as an interface on it, also after a restart of the agent, and after a move to another socket.
func TestMemifSockets(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	sockets := func(what string, want ...string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(l.sim.Dump()) {
			if _, name, ok := strings.Cut(strings.TrimSpace(line), "memif-socket "); ok {
				got = append(got, name[strings.Index(name, " ")+1:])
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: sockets %q, want %q", what, got, want)
		}
	}
	put := func(all ...proto.Message) {
		t.Helper()
		l.want = kv.Values{}
		for _, m := range all {
			l.want.Put(m)
		}
		l.allConfigured(l.resync())
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
