package acl

import (
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/enforce"
	"github.com/contiv-agent/contiv-agent/model"
)

// pack is tables joined to one.
type pack struct {
	name    string
	members []string
}

// shorten joins tables of lists that are too long: neighbours that do alike, or else all of a direction but the last, which decides
// everything.
func (r *Renderer) shorten(name string, l lists) lists {
	most := r.cfg.maxACLs()
	if len(l.in)+len(l.out) <= most {
		return l
	}
	out := lists{r.packed(l.in), r.packed(l.out)}
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

// packed joins neighbours that all permit or all deny.
func (r *Renderer) packed(list []place) []place {
	packTo := r.cfg.maxACLs() * 2 / 5 // of one direction, about
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

// join is one place for several, as a pack of that name.
func (r *Renderer) join(name string, run []place) place {
	p, members := r.packs[name], names(run)
	if p == nil || !slices.Equal(p.members, members) {
		r.unpack(name)
		p = &pack{name: name, members: members}
		r.packs[name] = p
		for _, m := range members {
			add(r.ofTable, m, p)
		}
		r.fixTable(r.packTable(p))
	}
	return place{table: name, denies: run[0].denies, mixed: slices.ContainsFunc(run, func(p place) bool { return p.denies != run[0].denies })}
}

func (r *Renderer) unpack(name string) {
	p := r.packs[name]
	if p == nil {
		return
	}
	delete(r.packs, name)
	for _, m := range p.members {
		remove(r.ofTable, m, p)
	}
}

// packTable writes a pack down.
func (r *Renderer) packTable(p *pack) *table {
	t := &table{name: p.name}
	n := 0
	for _, m := range p.members {
		if from := r.lookup(m); from != nil {
			n += len(from.rules)
		}
	}
	t.grow(n)
	for _, m := range p.members {
		if from := r.lookup(m); from != nil {
			t.take(from, 0, len(from.rules))
		}
	}
	return t
}

// repack writes packs again whose members changed, and forgets those no list has.
func (r *Renderer) repack() {
	changed := map[*pack]struct{}{}
	for name := range r.dirty.tables {
		for p := range r.ofTable[name] {
			changed[p] = struct{}{}
		}
	}
	for p := range changed {
		if r.out.refs[p.name] > 0 {
			r.fixTable(r.packTable(p))
		}
	}
	for name := range r.packs {
		if r.out.refs[name] > 0 {
			continue
		}
		r.unpack(name)
		delete(r.fixed, name)
	}
}

func (w *workload) ref() model.Ref { return model.Ref{Kind: KindWorkload, Name: w.id.workload} }

// isolated is the lists of an interface nothing may pass.
func (r *Renderer) isolated() lists {
	end := place{table: denyAll, cause: &enforce.Cause{Kind: enforce.CauseIsolated, Denied: true}, denies: true}
	return lists{[]place{{table: staticIn}, end}, append(slices.Clone(r.static(true)), end)}
}
