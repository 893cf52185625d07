package verified

import (
	"iter"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
)

type changes = []event.Change

func keys[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

func changesOf(t *testing.T, w *generate.World) changes {
	t.Helper()
	var all []generate.Change
	for _, o := range w.Objects() {
		all = append(all, generate.Change{Key: policy.KeyOf(o), Object: o})
	}
	out, err := hear.All(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }
