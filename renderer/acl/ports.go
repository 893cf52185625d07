package acl

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// remoteFilter returns the filter of an interface to destinations other than local pods, and the notes if it would be too big.
func (r *Renderer) remoteFilter(name string) (f *table.Filter, notes []model.Note) {
	h, e := r.hooks[name], r.exits[name]
	var egress []table.Use
	asking := map[*program]bool{}
	for _, last := range []bool{false, true} {
		for _, j := range r.sortedOutbound() {
			for _, seg := range j.remote {
				if j.last == last {
					egress = append(egress, table.Use{Seg: seg, Verb: seg.Clauses[0].Verb})
					asking[j.p] = asking[j.p] || seg.AsksPorts
				}
			}
		}
	}
	if !table.AskPorts(egress) && (h == nil || !table.AskPorts(h.uses)) && (e == nil || !table.AskPorts(e.uses)) {
		return nil, nil
	}
	answers := table.Use{Cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "to let answers pass"}}
	in, out := lists.Origins(nil, []table.Use{answers}), lists.Origins([]lists.Place{{Table: table.Outgoing}}, egress)
	if h != nil {
		in = nil
		for _, t := range h.before {
			in = append(in, table.Origin{Table: t})
		}
		in = append(in, lists.Origins(nil, h.uses)...)
	}
	if e != nil {
		out = append(out, lists.Origins(nil, e.uses)...)
	} else {
		out = append(out[1:], table.Origin{Use: table.Use{Cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "no pod's egress"}}})
	}
	f, fits := r.segs.FilterOf(in, out)
	if fits {
		return f, nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.ifaces)) {
		if i := r.ifaces[name]; asking[i.progs[1]] {
			notes = append(notes, i.unfiltered()...)
		}
	}
	if h != nil {
		notes = append(notes, unfiltered(model.Ref{Kind: KindHostEndpoint, Name: h.endpoint}))
	}
	if e != nil && (h == nil || h.endpoint != e.endpoint) {
		notes = append(notes, unfiltered(model.Ref{Kind: KindHostEndpoint, Name: e.endpoint}))
	}
	return nil, notes
}

// unfiltered notes that the rules of an owner about ports of SCTP are too many.
func unfiltered(ref model.Ref) model.Note {
	return model.Note{Ref: ref, Reason: "its policies make too many rules for SCTP: what they allow for some of its ports is denied", Refused: true}
}

func (i *iface) unfiltered() (notes []model.Note) {
	for _, w := range i.work {
		notes = append(notes, unfiltered(w.ref()))
	}
	return notes
}

// room is the number of ACLs that an interface may have beside its source check and those that its filter needs.
func (r *Renderer) room(f *table.Filter) int {
	most := r.cfg.maxACLs()
	if r.cfg.SourceCheck != SourceOff {
		most--
	}
	if f != nil {
		most -= len(f)
	}
	return most
}

// refilter marks the interfaces whose filters depend on a recompiled segment.
func (r *Renderer) refilter(seg *table.Segment) {
	if !r.segs.Asked() {
		return
	}
	r.dirty.remote = r.dirty.remote || seg.Host || seg.Scope.Egress && len(r.outbound) > 0
	for p := range r.ofSegment[seg] {
		for i := range p.users {
			if r.out.Wanted(i.name).Filter != nil || slices.ContainsFunc(i.progs[:], func(p *program) bool { return p != nil && table.AskPorts(p.uses) }) {
				r.dirty.ifaces[i] = struct{}{}
			}
		}
	}
}

// letThrough puts the filter of an interface beside its lists, and in front of them the table that permits the SCTP packets that the filter
// decides about.
func (r *Renderer) letThrough(name string, l lists.Lists, f *table.Filter) lists.Lists {
	if f == nil && r.out.Wanted(name).Filter == nil {
		return l
	}
	l.Filter = f
	for d, list := range [2]*[]lists.Place{&l.In, &l.Out} {
		t := &table.Table{Name: kv.SCTPPortsACL(name, d == 0)}
		if f != nil {
			t.AddPairs(f[d], r.node.ByteMatch6)
		}
		if !slices.ContainsFunc(t.Rules, func(a match.Atom) bool { return a.Verb != match.Deny }) {
			r.store.Unfix(t.Name)
			continue
		}
		r.store.Fix(t)
		n := 0
		for n < len(*list) && isFront((*list)[n]) {
			n++
		}
		*list = slices.Concat((*list)[:n], []lists.Place{{Table: t.Name}}, (*list)[n:])
	}
	return l
}
