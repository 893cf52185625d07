package acl

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// pack is several tables joined to one.
type pack struct {
	name    string
	members []string
	over    bool // the tables have too many rules together: the pack denies instead
}

// shorten joins tables of lists that are too long: adjacent tables with one verb, or else all of a direction except the last, which decides
// everything.
func (r *Renderer) shorten(name string, l lists, most int) lists {
	if len(l.in)+len(l.out) <= most {
		return l
	}
	out := lists{in: r.packed(l.in), out: r.packed(l.out), served: l.served}
	if len(out.in)+len(out.out) > most && len(out.in) >= len(out.out) {
		out.in = r.whole("in-", name, l.in)
	}
	if len(out.in)+len(out.out) > most {
		out.out = r.whole("out-", name, l.out)
	}
	if len(out.in)+len(out.out) > most {
		out.in = r.whole("in-", name, l.in)
	}
	return out
}

func (r *Renderer) whole(direction, name string, list []place) []place {
	last := len(list) - 1
	return []place{r.join("whole-"+direction+nameOf(name), list[:last]), list[last]}
}

// packed joins adjacent tables that all permit or all deny.
func (r *Renderer) packed(list []place) []place {
	packTo := r.cfg.maxACLs() * 2 / 5 // approximate share of one direction
	if len(list) <= packTo {
		return list
	}
	var out []place
	for start := 0; start < len(list); {
		end := start + 1
		for end < len(list) && list[end].denies == list[start].denies && list[start].cause == nil && list[end].cause == nil {
			end++
		}
		run := list[start:end]
		parts := max(1, len(run)*packTo/len(list))
		for i := range parts {
			part := run[i*len(run)/parts : (i+1)*len(run)/parts]
			if len(part) > 1 {
				part = []place{r.join("pack-"+nameOf(strings.Join(names(part), " ")), part)}
			}
			out = append(out, part...)
		}
		start = end
	}
	return out
}

// join replaces several places by one, a pack of that name.
func (r *Renderer) join(name string, run []place) place {
	p, members := r.packs[name], names(run)
	if p == nil || !slices.Equal(p.members, members) {
		r.unpack(name)
		p = &pack{name: name, members: members}
		r.packs[name] = p
		for _, m := range members {
			r.ofTable.Add(m, p)
		}
		r.fixTable(r.packTable(p))
	}
	at := place{table: name, denies: run[0].denies, mixed: slices.ContainsFunc(run, func(p place) bool { return p.denies != run[0].denies })}
	at.mixed = at.mixed || p.over
	at.dials = slices.ContainsFunc(run, func(p place) bool { return p.dials })
	at.egress = !slices.ContainsFunc(run, func(p place) bool { return !p.egress })
	if !slices.ContainsFunc(run, func(p place) bool { return !slices.Equal(p.srcs, run[0].srcs) }) {
		at.srcs = run[0].srcs
	}
	return at
}

func (r *Renderer) unpack(name string) {
	p := r.packs[name]
	if p == nil {
		return
	}
	delete(r.packs, name)
	for _, m := range p.members {
		r.ofTable.Remove(m, p)
	}
}

// packTable writes a pack.
func (r *Renderer) packTable(p *pack) *table {
	t := &table{name: p.name}
	n := 0
	for _, m := range p.members {
		if from := r.lookup(m); from != nil {
			n += len(from.rules)
			t.egress = t.egress || from.egress
		}
	}
	if p.over = n > r.most; p.over {
		return r.closed(p)
	}
	t.grow(n)
	for _, m := range p.members {
		if from := r.lookup(m); from != nil {
			t.take(from, 0, len(from.rules))
		}
	}
	return t
}

// closed returns the replacement of a pack that is too big: behind the tables without a policy, it denies packets from all sources that the
// pack's rules name.
func (r *Renderer) closed(p *pack) *table {
	t, cause := &table{name: p.name}, &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "too many rules"}
	sources := map[netip.Prefix]struct{}{}
	for _, m := range p.members {
		from := r.lookup(m)
		if from == nil {
			continue
		}
		if len(sources) == 0 && r.fixed[m] == from && len(t.rules)+len(from.rules) <= r.most/2 {
			t.take(from, 0, len(from.rules))
			t.egress = t.egress || from.egress
			continue
		}
		for i := range from.rules {
			sources[from.rules[i].Src] = struct{}{}
		}
	}
	for _, f := range match.Families {
		list := slices.DeleteFunc(slices.SortedFunc(maps.Keys(sources), netset.Compare), func(n netip.Prefix) bool { return match.FamilyOf(n.Addr()) != f })
		if len(list) > mostSources || slices.Contains(list, f.All()) {
			list = []netip.Prefix{f.All()}
		}
		for _, src := range list {
			t.add(match.Atom{Verb: match.Deny, Src: src, Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause)
		}
	}
	return t
}

// mostSources bounds what a closed pack lists.
const mostSources = 1024

// crowded notes whose lists are closed because they have too many rules: those of a pod or, if i is nil, of all pods whose packets leave.
func (r *Renderer) crowded(list []place, i *iface) (notes []model.Note) {
	said := map[*iface]bool{}
	say := func(i *iface) {
		if i == nil || said[i] {
			return
		}
		said[i] = true
		for _, w := range i.work {
			notes = append(notes, model.Note{Ref: w.ref(), Reason: "its policies make too many rules: what they allow is denied", Refused: true})
		}
	}
	for _, at := range list {
		if p := r.packs[at.table]; p == nil || !p.over {
			continue
		}
		if say(i); i != nil {
			continue
		}
		for _, a := range r.fixed[at.table].rules {
			say(r.ifaces[r.node.Interfaces[a.Src.Addr()]])
		}
	}
	return notes
}

// crowdedHosts is crowded for the rules of host endpoints in the lists of an interface.
func (r *Renderer) crowdedHosts(name string, l lists) (notes []model.Note) {
	for _, at := range slices.Concat(l.in, l.out) {
		p := r.packs[at.table]
		if p == nil || !p.over {
			continue
		}
		note := model.Note{Reason: "its policies make too many rules: what they allow is denied", Refused: true}
		switch h, e := r.hooks[name], r.exits[name]; {
		case h != nil && strings.HasPrefix(at.table, hostPack):
			note.Ref = model.Ref{Kind: KindHostEndpoint, Name: h.endpoint}
		case e != nil && strings.HasPrefix(at.table, exitPack):
			note.Ref = model.Ref{Kind: KindHostEndpoint, Name: e.endpoint}
		default:
			continue
		}
		notes = append(notes, note)
	}
	return notes
}

// repack rewrites packs whose members changed, and removes those that no list has. It reports whether one became too big, or fits
// again: then lists must be made again.
func (r *Renderer) repack() (relist bool) {
	changed := map[*pack]struct{}{}
	for name := range r.dirty.tables {
		for p := range r.ofTable[name] {
			changed[p] = struct{}{}
		}
	}
	for p := range changed {
		if r.out.refs[p.name] > 0 {
			was := p.over
			r.fixTable(r.packTable(p))
			relist = relist || was != p.over
		}
	}
	for name := range r.packs {
		if r.out.refs[name] > 0 {
			continue
		}
		r.unpack(name)
		delete(r.fixed, name)
	}
	return relist
}

// isolated returns the lists of an interface that nothing may pass.
func (r *Renderer) isolated() lists {
	end := place{table: denyAll, cause: &dataplane.Cause{Kind: dataplane.CauseIsolated, Denied: true}, denies: true}
	return lists{in: []place{{table: staticIn}, end}, out: append(slices.Clone(r.static(true, false)), end)}
}
