package realvpp

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/owner"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// TestVPPHasOneOwner starts a second agent on a VPP, as an update of a DaemonSet does: it waits, and takes over without a change.
func TestVPPHasOneOwner(t *testing.T) {
	l, err := openLab(theVPP(t))
	defer l.close()
	if err != nil {
		t.Fatal(err)
	}
	l.hollow = true
	dir := plumbTidy(t, l)
	g := &ground{VPP: l, reach: func(c *agent.Config) { c.VPP.Socket, c.Lock = l.socket(), l.socket()+".owner" }}
	cfg := agent.Config{
		NodeName: "node-1", Override: cni.Located(), Sources: map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}})},
	}
	g.reach(&cfg)
	second, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	defer func() { cancel(); <-ended }()
	until := func(what string, is func(*status.Status) bool) *status.Status {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			st, err := second.Status(ctx)
			if err == nil && is(st) {
				return st
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v %v", what, st, err)
			}
		}
	}
	g.live(t, dir, agent.RendererAuto, func() {
		go func() { defer close(ended); _ = second.Run(ctx) }()
		st := until("waiting", func(st *status.Status) bool { return strings.Contains(st.Waiting, "another agent owns this VPP") })
		t.Log(st.Waiting)
		if files := owner.LockFiles(cfg.Lock); len(files) != 2 {
			t.Errorf("lock files %v", files)
		}
	})
	st := until("taking over", func(st *status.Status) bool { return st.InSync && st.VPP.Connected })
	if st.Last.Writes != 0 || st.VPP.Connections != 1 {
		t.Errorf("the second agent wrote %d messages on connection %d", st.Last.Writes, st.VPP.Connections)
	}
}
