package realvpp

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/verified/mutation"
)

// The bounds of TestVPPMutations: clusters, and changes of the access lists of each.
const (
	mutatedClusters   = 20
	mutationsOfOne    = 60
	mostAlikeInTwenty = 16
)

// TestVPPMutations changes rules and attachments of access lists in real VPPs that are right, many times in each cluster. Verify finds each change, or
// no packet of those that it compares shows it. Afterwards the VPPs are right again.
func TestVPPMutations(t *testing.T) {
	path := theVPP(t)
	cases, first := oracle.Setting(t, "CONTIV_VPP_CASES", mutatedClusters), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	c := newCluster(path, agent.Config{})
	c.keep = true
	t.Cleanup(c.close)
	p, start := &policyCase{cluster: c, dir: t.TempDir(), used: map[policy.Flow]bool{}}, time.Now()
	figures := mutation.Figures{}
	for seed := first; seed < first+cases; seed++ {
		kinds := generate.AllKinds()
		kinds.Hosts = false // as in TestVPPPolicies
		p.world, p.rng = generate.NewWorld(seed, kinds), rand.New(rand.NewPCG(seed, 4))
		changes, err := p.replaceAll()
		if err == nil {
			err = p.apply(changes)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := p.everywhere(func(w *twin) error { return p.mutate(t.Context(), w, seed, figures) }); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d clusters, %s\n%s", cases, time.Since(start).Round(time.Second), figures)
	if made, found := figures.Count(); made < int(cases)*mutationsOfOne/4 || found < made*(20-mostAlikeInTwenty)/20 {
		t.Errorf("only %d of %d mutations are found", found, made)
	}
}

// mutate changes the real VPP of a node.
func (p *policyCase) mutate(ctx context.Context, w *twin, seed uint64, figures mutation.Figures) error {
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.lab.socket())
	}
	objects := slices.Collect(maps.Values(p.objects))
	l, err := mutation.New(ctx, seed, w.node, objects, dial)
	if err != nil {
		return err
	}
	defer l.Close()
	for range mutationsOfOne / len(p.nodes) {
		if l.Empty() {
			break
		}
		kind, result, err := l.Mutate(ctx)
		if err != nil {
			return err
		}
		figures.Add(kind, result)
	}
	return l.Right(ctx)
}
