package acl

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// list makes the lists of an interface. An unrestricted pod has only its source check.
func (r *Renderer) list(i *iface) {
	var now lists.Lists
	in, out := i.progs[0], i.progs[1]
	var notes []model.Note
	var f *table.Filter
	switch {
	case in == nil || out == nil:
		now, notes = r.isolated(), shared(i)
		now.Served = i.served
	case in.open && out.open && len(i.groups) == 0 && len(r.refuser.places(i)) == 0:
	default:
		now, f, notes = r.podLists(i, in, out)
	}
	r.notes.Set("interface\x00"+i.name, append(notes, r.sourceNotes(i)...))
	r.out.Enlist(i.name, r.checked(i, r.letThrough(i.name, now, f)))
}

// podLists returns the lists of a pod with these programs and the tables beside them.
func (r *Renderer) podLists(i *iface, in, out *program) (now lists.Lists, f *table.Filter, notes []model.Note) {
	now = lists.Lists{In: r.direction(i, out, r.refuser.places(i)), Out: r.direction(i, in, groupPlaces(i.groups)), Served: i.served}
	fits := true
	if table.AskPorts(in.uses) || table.AskPorts(out.uses) {
		before := func(list []lists.Place, uses []table.Use) []lists.Place {
			return list[:len(list)-len(lists.Places(uses, false))]
		}
		f, fits = r.segs.FilterOf(lists.Origins(before(now.In, out.uses), out.uses), lists.Origins(before(now.Out, in.uses), in.uses))
	}
	if f == nil {
		now.In, now.Out = lists.WithoutSCTP(now.In, in.open), lists.WithoutSCTP(now.Out, out.open)
	}
	fronts := frontPlaces(r, out)
	now = r.packs.Shorten(i.name, now, r.room(f)-len(fronts))
	now.In = inFrontOf(now.In, fronts)
	notes = r.crowded(slices.Concat(now.In, now.Out), i)
	if !fits {
		notes = append(notes, i.unfiltered()...)
	}
	return now, f, notes
}

// shared notes that an interface has several endpoints: it is unknown whose policies apply.
func shared(i *iface) (notes []model.Note) {
	for _, w := range i.work {
		if len(i.work) > 1 {
			notes = append(notes, model.Note{Ref: w.ref(), Reason: "another endpoint has one of its addresses: it is isolated", Refused: true})
		}
	}
	return notes
}

// direction returns the places of a program in an interface's list, behind those of other pods' programs.
func (r *Renderer) direction(i *iface, p *program, others []lists.Place) []lists.Place {
	var out []lists.Place
	if !p.open {
		out = r.static(!p.spec.Egress, table.AskPeers(p.uses))
		if !p.spec.Down {
			out = append(out, r.unasked(i, p)...)
		}
	}
	return slices.Concat(out, others, lists.Flagged(lists.Places(p.uses, p.spec.Egress), p.spec.Egress, false))
}

func groupPlaces(groups []*residueGroup) (out []lists.Place) {
	for _, g := range groups {
		out = append(out, lists.Place{Table: g.Name, Denies: true, Egress: true})
	}
	return out
}

// unasked returns the places for packets that the program does not decide about, or only in another form.
func (r *Renderer) unasked(i *iface, p *program) []lists.Place {
	var out []lists.Place
	if p.spec.Egress {
		out = append(r.outer(p), lists.Flagged(r.fixed(r.node.OwnTable(i.name, i.addrs)), false, true)...)
	} else {
		out = append(r.hairpins(i), r.fixed(r.node.SelfTable(i.name, i.addrs))...)
	}
	return out
}

// static returns the places that do not depend on policies, except on whether they match the sender (peers).
func (r *Renderer) static(output, peers bool) []lists.Place {
	switch {
	case !output:
		return []lists.Place{{Table: table.StaticIn}}
	}
	out := []lists.Place{{Table: table.StaticOut}}
	if r.store.Full(table.FromNode) {
		out = append(out, lists.Place{Table: table.FromNode})
	}
	pool := table.FromPool
	if peers {
		pool = table.FromHidden
	}
	if r.store.Full(pool) {
		out = append(out, lists.Place{Table: pool, Denies: true})
	}
	return out
}

// isolated returns the lists of an interface that nothing may pass.
func (r *Renderer) isolated() lists.Lists {
	end := lists.Place{Table: table.DenyAll, Cause: &dataplane.Cause{Kind: dataplane.CauseIsolated, Denied: true}, Denies: true}
	return lists.Lists{In: []lists.Place{{Table: table.StaticIn}, end}, Out: append(slices.Clone(r.static(true, false)), end)}
}
