package acl

import (
	"maps"
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// TestEvaluatedPodWithoutLists: the interface of a pod that needs no lists has a value without any, as long as the pod exists; an
// interim state opens none.
func TestEvaluatedPodWithoutLists(t *testing.T) {
	for _, evaluated := range []bool{true, false} {
		n := testNode(dataplane.PreDNAT)
		s := &scene{w: newWorld(), b: newBook()}
		s.r = New(Config{SourceCheck: SourceOff, Evaluated: evaluated}, s.b)
		s.r.SetNode(n)
		s.send(start()...)
		s.send(openPod(0))
		check := func(when string, want bool) {
			t.Helper()
			s.settle(t)
			list := s.b.lists["if-p1"]
			if (list != nil) != want || len(list.GetInput())+len(list.GetOutput()) > 0 {
				t.Errorf("evaluated %v, %s: %v", evaluated, when, list)
			}
		}
		check("open", evaluated)
		clear(s.b.lists)
		s.r.Resync()
		check("resync", evaluated)
		if list := s.b.lists["if-p2"]; len(list.GetInput()) == 0 {
			t.Errorf("a pod nobody knows: %v", list)
		}
		n.Interfaces = maps.Clone(n.Interfaces)
		for a, name := range n.Interfaces {
			if name == "if-p1" {
				delete(n.Interfaces, a)
			}
		}
		s.r.SetNode(n)
		check("without its pod", false)
	}
}
