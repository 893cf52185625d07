package acl

import (
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
)

// crowded notes whose lists are closed because they have too many rules: those of a pod or, if i is nil, of all pods whose packets leave.
func (r *Renderer) crowded(list []lists.Place, i *endpoint.Iface) (notes []model.Note) {
	said := map[*endpoint.Iface]bool{}
	say := func(i *endpoint.Iface) {
		if i == nil || said[i] {
			return
		}
		said[i] = true
		notes = append(notes, i.Notes("its policies make too many rules: what they allow is denied")...)
	}
	for _, at := range list {
		if !r.packs.Over(at.Table) {
			continue
		}
		if say(i); i != nil {
			continue
		}
		for _, a := range r.pods.Store.Fixed(at.Table).Rules {
			say(r.pods.Ifaces[r.pods.Node.Interfaces[a.Src.Addr()]])
		}
	}
	return notes
}
