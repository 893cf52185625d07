package nat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/nat44_ed"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/vppagent/cost"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

func worldWith(sessions, workers int) *descriptor.World {
	return descriptor.NewWorld(descriptor.Options{NATWorkers: workers, NATSessions: func() (int, bool) { return sessions, sessions >= 0 }}, nil)
}

func removed(backends int, affinity uint32) mapping {
	m := mapping{id: newNATID([4]byte{10, 96, 0, 1}, 80, 6), affinity: affinity}
	for i := range backends {
		m.locals = append(m.locals, backend(i, 1))
	}
	return m
}

// TestRemovalInPieces: a mapping loses its backends one by one if VPP would otherwise look at too many sessions in one message.
func TestRemovalInPieces(t *testing.T) {
	for _, tc := range []struct {
		backends, sessions, workers int
		affinity                    uint32
		messages                    int
	}{
		{10, -1, 1, 0, 1},
		{10, 0, 1, 0, 1},
		{10, 1000, 1, 0, 1},
		{10, 50_000, 1, 0, 1 + 30 + 1}, // a drop pad is added, backends and their pads are removed, and the mapping
		{2, 50_000, 1, 0, 1 + 6 + 1},
		{1, 50_000, 1, 0, 1 + 3 + 1},
		{10, 50_000, 1, 60, 2*2 + 8*3 + 1},
		{10, 50_000, 2, 0, 13},
		{1, 50_000, 2, 0, 1}, // VPP has the only backend twice
	} {
		ops := removeMapping(worldWith(tc.sessions, tc.workers), removed(tc.backends, tc.affinity))
		if len(ops) != tc.messages {
			t.Errorf("%+v: %d messages", tc, len(ops))
		}
		for _, op := range ops {
			if op.Frees == (descriptor.Claim{}) {
				t.Errorf("%+v: a request would be sent behind the removal if another value takes the address", tc)
			}
			if op.Cost > cost.Stall {
				t.Errorf("%+v: %s takes %s", tc, op.Call.Msg.GetMessageName(), op.Cost)
			}
		}
		last, ok := ops[len(ops)-1].Call.Msg.(*nat44_ed.Nat44AddDelLbStaticMapping)
		if !ok || last.IsAdd {
			t.Errorf("%+v: the last message is %T", tc, ops[len(ops)-1].Call.Msg)
		}
	}
}

// TestEmptied: VPP accepts every step, clients pinned to a backend get a drop pad, and no backend is left.
func TestEmptied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		padded, affinity := rapid.Bool().Draw(t, "padded"), rapid.Bool().Draw(t, "affinity")
		have := represent(padded, drawBackends(t, "have"))
		last, steps, ok := emptied(have, padded, affinity)
		if !ok {
			if (padded || !affinity) && !hasDuplicate(have) && weights(have) < 254 && len(have) > 3 {
				t.Fatalf("no way from %v", have)
			}
			return
		}
		vpp := newSlots(have)
		for i, s := range steps {
			if err := vpp.do(s); err != nil {
				t.Fatalf("step %d of %v: %v\nfrom %v", i, steps, err, have)
			}
		}
		got := vpp.list()
		slices.SortFunc(got, compareLocals)
		slices.SortFunc(last, compareLocals)
		if !slices.Equal(got, last) {
			t.Fatalf("got %v, want %v", got, last)
		}
		for i, l := range vpp.at {
			if affinity && i < len(have) && have[i].weight > 0 && !slices.Contains(last, l) {
				t.Fatalf("slot %d still points to %s after %v\nfrom %v", i, l, steps, have)
			}
		}
	})
}

// TestPadsAreNotChanged: emptied mappings share the pads with all others.
func TestPadsAreNotChanged(t *testing.T) {
	before := fmt.Sprint(pads, dropPad, dropPads)
	for _, affinity := range []uint32{0, 60} {
		removeMapping(worldWith(50_000, 1), removed(5, affinity))
	}
	if after := fmt.Sprint(pads, dropPad, dropPads); after != before || strings.Count(after, "weight 0") != 2 {
		t.Errorf("%s, were %s", after, before)
	}
}
