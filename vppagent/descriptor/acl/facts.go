package acl

import (
	"maps"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// facts are what is known of VPP's access lists and classifier.
type facts struct {
	acls     aclTable            // ours
	lists    map[uint32]attached // what interfaces have, of ours and of others, by sw_if_index
	enforced bool                // source ranges are, as of the last resync
	class    classWorld
}

func factsOf(w *descriptor.World) *facts {
	return descriptor.FactsOf(w, func() *facts { return &facts{lists: map[uint32]attached{}, class: newClassWorld()} })
}

// Clone implements Facts.
func (f *facts) Clone() descriptor.Facts {
	return &facts{f.acls.clone(), maps.Clone(f.lists), f.enforced, f.class.clone()}
}

// Forget forgets what was attached to interfaces.
func (f *facts) Forget(gone func(swIfIndex uint32) bool) {
	maps.DeleteFunc(f.lists, func(index uint32, _ attached) bool { return gone(index) })
	maps.DeleteFunc(f.class.live, func(p classPlace, _ bool) bool { return gone(p.swIf) })
}

// Index is the acl_index of the access list that counts of a key.
func Index(w *descriptor.World, key string) (index uint32, ok bool) {
	index, ok = factsOf(w).acls.index[key]
	return index, ok
}
