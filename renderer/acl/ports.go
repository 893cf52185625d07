package acl

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/outer"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// remoteFilter returns the filter of an interface to destinations other than local pods, and the notes if it would be too big.
func (r *Renderer) remoteFilter(name string) (f *table.Filter, notes []model.Note) {
	h, e := r.hosts.Hook(name), r.hosts.Exit(name)
	egress, asking := r.egress.RemoteUses()
	if !table.AskPorts(egress) && (h == nil || !table.AskPorts(h.Uses)) && (e == nil || !table.AskPorts(e.Uses)) {
		return nil, nil
	}
	answers := table.Use{Cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "to let answers pass"}}
	in, out := lists.Origins(nil, []table.Use{answers}), lists.Origins([]lists.Place{{Table: table.Outgoing}}, egress)
	if h != nil {
		in = nil
		for _, t := range h.Before {
			in = append(in, table.Origin{Table: t})
		}
		in = append(in, lists.Origins(nil, h.Uses)...)
	}
	if e != nil {
		out = append(out, lists.Origins(nil, e.Uses)...)
	} else {
		out = append(out[1:], table.Origin{Use: table.Use{Cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "no pod's egress"}}})
	}
	f, fits := r.pods.Segs.FilterOf(in, out)
	if fits {
		return f, nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.pods.Ifaces)) {
		if i := r.pods.Ifaces[name]; asking[i.Progs[1]] {
			notes = append(notes, i.Notes(unfiltered)...)
		}
	}
	if h != nil {
		notes = append(notes, model.Note{Ref: model.Ref{Kind: KindHostEndpoint, Name: h.Endpoint}, Reason: unfiltered, Refused: true})
	}
	if e != nil && (h == nil || h.Endpoint != e.Endpoint) {
		notes = append(notes, model.Note{Ref: model.Ref{Kind: KindHostEndpoint, Name: e.Endpoint}, Reason: unfiltered, Refused: true})
	}
	return nil, notes
}

// unfiltered is the reason in a note on the owner of rules about ports of SCTP that are too many.
const unfiltered = "its policies make too many rules for SCTP: what they allow for some of its ports is denied"

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
	if !r.pods.Segs.Asked() {
		return
	}
	r.pods.Leaving = r.pods.Leaving || seg.Host || seg.Scope.Egress && !r.egress.Empty()
	r.pods.UsersOf(seg, func(i *endpoint.Iface) {
		if r.out.Wanted(i.Name).Filter != nil || slices.ContainsFunc(i.Progs[:], func(p *endpoint.Program) bool { return p != nil && table.AskPorts(p.Uses) }) {
			r.pods.Relist(i)
		}
	})
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
			t.AddPairs(f[d], r.pods.Node.ByteMatch6)
		}
		if !slices.ContainsFunc(t.Rules, func(a match.Atom) bool { return a.Verb != match.Deny }) {
			r.pods.Store.Unfix(t.Name)
			continue
		}
		r.pods.Store.Fix(t)
		n := 0
		for n < len(*list) && outer.IsFront((*list)[n]) {
			n++
		}
		*list = slices.Concat((*list)[:n], []lists.Place{{Table: t.Name}}, (*list)[n:])
	}
	return l
}
