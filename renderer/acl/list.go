package acl

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/outer"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// list makes the lists of an interface. An unrestricted pod has only its source check.
func (r *Renderer) list(i *endpoint.Iface) {
	var now lists.Lists
	in, out := i.Progs[0], i.Progs[1]
	var notes []model.Note
	var f *table.Filter
	switch {
	case in == nil || out == nil:
		now, notes = r.isolated(), shared(i)
		now.Served = i.Served
	case in.Open && out.Open && len(r.egress.Places(i)) == 0 && len(r.closed.Places(i)) == 0:
	default:
		now, f, notes = r.podLists(i, in, out)
	}
	r.pods.Notes.Set("interface\x00"+i.Name, append(notes, r.checks.Notes(i)...))
	r.out.Enlist(i.Name, r.checks.InFront(i, r.letThrough(i.Name, now, f)))
}

// podLists returns the lists of a pod with these programs and the tables beside them.
func (r *Renderer) podLists(i *endpoint.Iface, in, out *endpoint.Program) (now lists.Lists, f *table.Filter, notes []model.Note) {
	now = lists.Lists{In: r.direction(i, out, r.closed.Places(i)), Out: r.direction(i, in, r.egress.Places(i)), Served: i.Served}
	fits := true
	if table.AskPorts(in.Uses) || table.AskPorts(out.Uses) {
		before := func(list []lists.Place, uses []table.Use) []lists.Place {
			return list[:len(list)-len(lists.Places(uses, false))]
		}
		f, fits = r.pods.Segs.FilterOf(lists.Origins(before(now.In, out.Uses), out.Uses), lists.Origins(before(now.Out, in.Uses), in.Uses))
	}
	if f == nil {
		now.In, now.Out = lists.WithoutSCTP(now.In, in.Open), lists.WithoutSCTP(now.Out, out.Open)
	}
	fronts := r.outer.Fronts(out)
	now = r.packs.Shorten(i.Name, now, r.room(f)-len(fronts))
	now.In = outer.InFrontOf(now.In, fronts)
	notes = r.crowded(slices.Concat(now.In, now.Out), i)
	if !fits {
		notes = append(notes, i.Notes(unfiltered)...)
	}
	return now, f, notes
}

// shared notes that an interface has several endpoints: it is unknown whose policies apply.
func shared(i *endpoint.Iface) (notes []model.Note) {
	for _, w := range i.Work {
		if len(i.Work) > 1 {
			notes = append(notes, model.Note{Ref: w.Ref(), Reason: "another endpoint has one of its addresses: it is isolated", Refused: true})
		}
	}
	return notes
}

// direction returns the places of a program in an interface's list, behind those of other pods' programs.
func (r *Renderer) direction(i *endpoint.Iface, p *endpoint.Program, others []lists.Place) []lists.Place {
	var out []lists.Place
	if !p.Open {
		out = r.static(!p.Spec.Egress, table.AskPeers(p.Uses))
		if !p.Spec.Down {
			out = append(out, r.unasked(i, p)...)
		}
	}
	return slices.Concat(out, others, lists.Flagged(lists.Places(p.Uses, p.Spec.Egress), p.Spec.Egress, false))
}

// unasked returns the places for packets that the program does not decide about, or only in another form.
func (r *Renderer) unasked(i *endpoint.Iface, p *endpoint.Program) []lists.Place {
	var out []lists.Place
	if p.Spec.Egress {
		r.pods.Store.Fix(r.pods.Node.OwnTable(i.Name, i.Addrs))
		out = append(r.outer.Places(p), lists.Flagged(lists.Filled(r.pods.Store, node.OwnName(i.Name)), false, true)...)
	} else {
		r.pods.Store.Fix(r.pods.Node.SelfTable(i.Name, i.Addrs))
		out = append(r.outer.Hairpins(i), lists.Filled(r.pods.Store, node.SelfName(i.Name))...)
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
	if r.pods.Store.Full(table.FromNode) {
		out = append(out, lists.Place{Table: table.FromNode})
	}
	pool := table.FromPool
	if peers {
		pool = table.FromHidden
	}
	if r.pods.Store.Full(pool) {
		out = append(out, lists.Place{Table: pool, Denies: true})
	}
	return out
}

// isolated returns the lists of an interface that nothing may pass.
func (r *Renderer) isolated() lists.Lists {
	end := lists.Place{Table: table.DenyAll, Cause: &dataplane.Cause{Kind: dataplane.CauseIsolated, Denied: true}, Denies: true}
	return lists.Lists{In: []lists.Place{{Table: table.StaticIn}, end}, Out: append(slices.Clone(r.static(true, false)), end)}
}
