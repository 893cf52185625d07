package oracle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
)

// TestRenderersAreAlike gives the same random clusters and packets to nat44 and to cnat: each packet has the same fate and may reach
// the same endpoints, but for what either renderer's page declares. (Sources are held against Kubernetes, renderer by renderer.)
func TestRenderersAreAlike(t *testing.T) {
	cases := Setting(t, "CONTIV_CASES", pace.Fewer[uint64](defaultCases, 2))
	first := Setting(t, "CONTIV_SEED", 1)
	worlds := (cases + stepsPerWorld - 1) / stepsPerWorld
	asked, declared := 0, 0
	for seed := first; seed < first+worlds; seed++ {
		w := NewWorldWithExtras(seed, IPv4)
		var clusters []*trace.Cluster
		for _, r := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
			c := trace.NewCluster(arrangement{r, IPv4}.config(seed, w.Extras))
			t.Cleanup(c.Close)
			applyTo(t, c, w.Objects(), nil)
			clusters = append(clusters, c)
		}
		for step := range stepsPerWorld {
			put, removed := w.Step()
			for _, c := range clusters {
				applyTo(t, c, put, removed)
			}
			cluster := w.Cluster()
			for _, p := range w.Packets(packetsPer) {
				want := cluster.Expect(p)
				if p.Src == p.Dst.Addr() || nat44Limit(cluster, p, want) != "" || cnatLimit(cluster, p, want) != "" {
					declared++
					continue
				}
				asked++
				q := question(w, p)
				if diff := alike(clusters[0].Answer(q), clusters[1].Answer(q)); diff != "" {
					t.Fatalf("seed %d step %d: %v: %s", seed, step, p, diff)
				}
			}
		}
		for _, c := range clusters {
			c.Close()
		}
	}
	t.Logf("%d packets alike, %d where a renderer's page declares something else", asked, declared)
}

// alike returns how two answers differ.
func alike(nat44, cnat trace.Answer) string {
	x, y := backendsOf(nat44), backendsOf(cnat)
	switch {
	case nat44.Verdict != cnat.Verdict:
		return fmt.Sprintf("nat44: %s (%s), cnat: %s (%s)", nat44.Verdict, nat44.Reason, cnat.Verdict, cnat.Reason)
	case Fate(nat44.Verdict) != Delivered:
		return ""
	case !slices.Equal(x, y):
		return fmt.Sprintf("nat44 may reach %v, cnat %v", x, y)
	}
	return ""
}
