package vppagent_test

import (
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestVPPLaws checks the laws of the sim on a real VPP: a fresh agent finds what was created, updated and deleted, and nothing is
// written twice.
func TestVPPLaws(t *testing.T) {
	w := &witness{conn: realVPP(t, 0, "punt { socket "+filepath.Join(t.TempDir(), "punt.sock")+" }")}
	for _, law := range laws() {
		if !law.real {
			continue
		}
		t.Run(law.kind, func(t *testing.T) {
			agent := vppagent.New(vppagent.Config{Caller: w})
			commit := func(what string, values map[string]proto.Message, kind event.ResyncKind, writes bool) {
				t.Helper()
				w.seen = nil
				c := agent.Commit(t.Context(), &event.Txn{Resync: kind, Values: values})
				if c.Err != nil {
					t.Fatalf("%s: %v", what, c.Err)
				}
				for _, s := range c.Statuses {
					if s.State != event.Configured && s.State != event.Removed {
						t.Fatalf("%s: not configured:\n%s\nafter\n%s", what, statuses(c), w.story())
					}
				}
				if writes != (c.Writes > 0) {
					t.Fatalf("%s: %d writes:\n%s", what, c.Writes, w.story())
				}
			}
			want := kv.Values{}
			for _, m := range law.needs {
				want.Put(m)
			}
			commit("needs", want, event.Full, len(want) > 0)
			for _, step := range []struct {
				what string
				m    proto.Message
			}{{"create", law.one}, {"update", law.two}, {"update back", law.one}} {
				want.Put(step.m)
				commit(step.what, map[string]proto.Message{kv.Key(step.m): step.m}, event.NoResync, true)
				commit(step.what+", resync", want, event.Full, false)
				agent = vppagent.New(vppagent.Config{Caller: w})
				commit(step.what+", restart of the agent", want, event.Full, false)
			}
			delete(want, kv.Key(law.one))
			commit("delete", map[string]proto.Message{kv.Key(law.one): nil}, event.NoResync, true)
			commit("delete, resync", want, event.Full, false)
			commit("all gone", kv.Values{}, event.Full, len(want) > 0)
		})
	}
}
