package adversary

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/trace"
)

// tries bounds how often a finding is played again to make it smaller.
const tries = 300

// Shrink takes events away from a finding, and then objects, while a breach of the same class is found in what is left.
func Shrink(f *Finding, known map[Class]bool) *Finding {
	left := tries
	try := func(objects []policy.Object, events []Event) bool {
		if left--; left < 0 {
			return false
		}
		breach, n := replay(f.Config, objects, events, known)
		if breach.Class != f.Class {
			return false
		}
		f.Breach, f.Objects, f.Events = breach, objects, events[:n]
		return true
	}
	if !try(f.Objects, f.Events) {
		f.Text += "\n(not found when played once more)"
		return f
	}
	for size := len(f.Events) / 2; size > 0; size /= 2 {
		for at := 0; at < len(f.Events)-1; { // the last one is the packet itself
			fewer := append(append([]Event{}, f.Events[:at]...), f.Events[min(at+size, len(f.Events)-1):]...)
			if len(fewer) == len(f.Events) || !try(f.Objects, fewer) {
				at += size
			}
		}
	}
	var places, rules []policy.Object
	for _, o := range f.Objects {
		switch o.(type) {
		case *corev1.Node, *corev1.Pod, *corev1.Service, *discoveryv1.EndpointSlice: // without parts of them packets go other ways
			places = append(places, o)
		default:
			rules = append(rules, o)
		}
	}
	with := func(rules []policy.Object) []policy.Object {
		objects := append(append([]policy.Object{}, places...), rules...)
		policy.Sort(objects)
		return objects
	}
	rules = generate.Shrink(rules, func(fewer []policy.Object) bool { return try(with(fewer), f.Events) })
	for i := len(places) - 1; i >= 0; i-- {
		if _, isNode := places[i].(*corev1.Node); isNode {
			continue
		}
		all := places
		if places = append(append([]policy.Object{}, all[:i]...), all[i+1:]...); !try(with(rules), f.Events) {
			places = all
		}
	}
	return f
}

// replay plays events on a new cluster: the first breach, and after how many events.
func replay(cfg trace.Config, objects []policy.Object, events []Event, known map[Class]bool) (Breach, int) {
	t, err := newTable(cfg, objects)
	if err != nil {
		return Breach{}, 0
	}
	defer t.cluster.Close()
	for i := range events {
		_, breach, err := t.play(&events[i], nil)
		if err != nil {
			return Breach{}, 0
		}
		if !breach.None() && !known[breach.Class] {
			return breach, i + 1
		}
	}
	return Breach{}, 0
}
