package selector

import (
	"fmt"
	"testing"
)

// benchmarked are typical selectors: a NetworkPolicy's peer, a Calico policy, one with many values.
var benchmarked = []struct{ name, text string }{
	{"eq", `app == "web"`},
	{"peer", `(projectcalico.org/namespace == 'prod') && (projectcalico.org/orchestrator == 'k8s' && app == 'web' && tier in {'front','back'})`},
	{"miss", `(projectcalico.org/namespace == 'test') && (projectcalico.org/orchestrator == 'k8s' && app == 'web')`},
	{"negations", `!(has(quarantine) || env not in {"prod", "stage"}) && tier != "db" && !has(legacy)`},
	{"inherited", `pcns.team == "red" || pcns.team == "blue"`},
	{"many", manyValues()},
}

func manyValues() string {
	text := "app in {"
	for i := range 200 {
		text += fmt.Sprintf("'app-%d',", i)
	}
	return text + "'web'}"
}

// benchmarkedLabels are the labels of a pod and of its namespace.
func benchmarkedLabels() Map {
	return Map{
		"app": "web", "tier": "front", "env": "prod", "release": "r1", "pod-template-hash": "6d5f7c", "version": "v2",
		"projectcalico.org/namespace": "prod", "projectcalico.org/orchestrator": "k8s", "projectcalico.org/serviceaccount": "default",
		"pcns.kubernetes.io/metadata.name": "prod", "pcns.team": "blue", "pcns.projectcalico.org/name": "prod",
	}
}

func BenchmarkParse(b *testing.B) {
	for _, c := range benchmarked {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustParse(b, c.text)
			}
		})
	}
}

func BenchmarkMatchSymbols(b *testing.B) { benchmarkMatch(b, interned(benchmarkedLabels())) }

func BenchmarkMatchMap(b *testing.B) { benchmarkMatch(b, benchmarkedLabels()) }

func benchmarkMatch(b *testing.B, labels Labels) {
	for _, c := range benchmarked {
		s := mustParse(b, c.text)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Matches(labels)
			}
		})
	}
}
