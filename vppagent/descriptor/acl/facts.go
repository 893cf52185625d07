package acl

import (
	"maps"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// facts are the known state of VPP's access lists.
type facts struct {
	acls     aclTable            // ours
	lists    map[uint32]attached // lists of interfaces, ours and foreign ones, by sw_if_index
	enforced bool                // source ranges are enforced, as of the last resync
}

func factsOf(w *descriptor.World) *facts {
	return descriptor.FactsOf(w, func() *facts { return &facts{lists: map[uint32]attached{}} })
}

// Clone implements Facts.
func (f *facts) Clone() descriptor.Facts {
	return &facts{f.acls.clone(), maps.Clone(f.lists), f.enforced}
}

// Forget forgets the attachments of interfaces.
func (f *facts) Forget(gone func(swIfIndex uint32) bool) {
	maps.DeleteFunc(f.lists, func(index uint32, _ attached) bool { return gone(index) })
}

// Index returns the acl_index of the current access list of a key.
func Index(w *descriptor.World, key string) (index uint32, ok bool) {
	index, ok = factsOf(w).acls.index[key]
	return index, ok
}
