package verified

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/test/verified/mutation"
)

// perWorld is how many changes of correct access lists one cluster gets, one after the other and each undone.
const perWorld = 50

// TestMutations changes rules and attachments of pods' access lists in VPP. Verify finds each change, or no packet of those that it compares
// shows it.
func TestMutations(t *testing.T) {
	figures := mutation.Figures{}
	first := oracle.Setting(t, "CONTIV_SEED", 1000)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](3, 3)) && !t.Failed(); seed++ {
		w := generate.NewWorld(seed, generate.AllKinds())
		changes := changesOf(t, w)
		c := start(t, changes, seed)
		for _, name := range c.Nodes() {
			l, err := mutation.New(t.Context(), seed, name, objectsOf(changes), c.Sim(name).Dial)
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, name, err)
			}
			for range perWorld / len(c.Nodes()) {
				if l.Empty() {
					break
				}
				kind, result, err := l.Mutate(t.Context())
				if err != nil {
					t.Errorf("seed %d, %s: %v", seed, name, err)
				}
				figures.Add(kind, result)
			}
			if err := l.Right(t.Context()); err != nil {
				t.Errorf("seed %d, %s: afterwards: %v", seed, name, err)
			}
			l.Close()
		}
		c.Close()
	}
	t.Log(figures)
	if made, found := figures.Count(); found == 0 || found < made/5 {
		t.Errorf("only %d of %d mutations are found", found, made)
	}
}
