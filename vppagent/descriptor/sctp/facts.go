package sctp

import (
	"maps"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// facts are the known state of VPP's classifier.
type facts struct{ class classWorld }

func factsOf(w *descriptor.World) *facts {
	return descriptor.FactsOf(w, func() *facts { return &facts{class: newClassWorld()} })
}

// Clone implements Facts.
func (f *facts) Clone() descriptor.Facts { return &facts{f.class.clone()} }

// Forget forgets the tables of interfaces.
func (f *facts) Forget(gone func(swIfIndex uint32) bool) {
	maps.DeleteFunc(f.class.live, func(p classPlace, _ bool) bool { return gone(p.swIf) })
}
