package lists

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// pack is several tables joined to one.
type pack struct {
	name    string
	members []string
	over    bool // the tables have too many rules together: the pack denies instead
}

// Packs has the packs, by name. It writes them into a store.
type Packs struct {
	store   *table.Store
	segs    *table.Segments
	most    int // ACLs of an interface
	all     map[string]*pack
	ofTable index.Of[string, *pack]
}

// NewPacks returns packs of the tables of a store, without any; most bounds the ACLs of an interface.
func NewPacks(store *table.Store, segs *table.Segments, most int) *Packs {
	return &Packs{store: store, segs: segs, most: most, all: map[string]*pack{}, ofTable: index.Of[string, *pack]{}}
}

// Over reports whether a table is a pack that denies because its tables have too many rules together.
func (g *Packs) Over(name string) bool {
	p := g.all[name]
	return p != nil && p.over
}

// Shorten joins tables of lists that are too long: adjacent tables with one verb, or else all of a direction except the last, which decides
// everything.
func (g *Packs) Shorten(name string, l Lists, most int) Lists {
	if len(l.In)+len(l.Out) <= most {
		return l
	}
	out := Lists{In: g.Packed(l.In), Out: g.Packed(l.Out), Served: l.Served}
	if len(out.In)+len(out.Out) > most && len(out.In) >= len(out.Out) {
		out.In = g.whole("in-", name, l.In)
	}
	if len(out.In)+len(out.Out) > most {
		out.Out = g.whole("out-", name, l.Out)
	}
	if len(out.In)+len(out.Out) > most {
		out.In = g.whole("in-", name, l.In)
	}
	return out
}

func (g *Packs) whole(direction, name string, list []Place) []Place {
	last := len(list) - 1
	return []Place{g.Join("whole-"+direction+table.NameOf(name), list[:last]), list[last]}
}

// Packed joins adjacent tables that all permit or all deny.
func (g *Packs) Packed(list []Place) []Place {
	packTo := g.most * 2 / 5 // approximate share of one direction
	if len(list) <= packTo {
		return list
	}
	var out []Place
	for start := 0; start < len(list); {
		end := start + 1
		for end < len(list) && list[end].Denies == list[start].Denies && list[start].Cause == nil && list[end].Cause == nil {
			end++
		}
		run := list[start:end]
		parts := max(1, len(run)*packTo/len(list))
		for i := range parts {
			part := run[i*len(run)/parts : (i+1)*len(run)/parts]
			if len(part) > 1 {
				part = []Place{g.Join("pack-"+table.NameOf(strings.Join(Names(part), " ")), part)}
			}
			out = append(out, part...)
		}
		start = end
	}
	return out
}

// Join replaces several places by one, a pack of that name.
func (g *Packs) Join(name string, run []Place) Place {
	p, members := g.all[name], Names(run)
	if p == nil || !slices.Equal(p.members, members) {
		g.unpack(name)
		p = &pack{name: name, members: members}
		g.all[name] = p
		for _, m := range members {
			g.ofTable.Add(m, p)
		}
		g.store.Fix(g.packTable(p))
	}
	at := Place{Table: name, Denies: run[0].Denies, Mixed: slices.ContainsFunc(run, func(p Place) bool { return p.Denies != run[0].Denies })}
	at.Mixed = at.Mixed || p.over
	at.Dials = slices.ContainsFunc(run, func(p Place) bool { return p.Dials })
	at.Egress = !slices.ContainsFunc(run, func(p Place) bool { return !p.Egress })
	if !slices.ContainsFunc(run, func(p Place) bool { return !slices.Equal(p.Sources, run[0].Sources) }) {
		at.Sources = run[0].Sources
	}
	return at
}

func (g *Packs) unpack(name string) {
	p := g.all[name]
	if p == nil {
		return
	}
	delete(g.all, name)
	for _, m := range p.members {
		g.ofTable.Remove(m, p)
	}
}

// packTable writes a pack.
func (g *Packs) packTable(p *pack) *table.Table {
	t := &table.Table{Name: p.name}
	n := 0
	for _, m := range p.members {
		if from := g.store.Lookup(m); from != nil {
			n += len(from.Rules)
			t.Egress = t.Egress || from.Egress
		}
	}
	if p.over = n > g.segs.Most; p.over {
		return g.closed(p)
	}
	t.Grow(n)
	for _, m := range p.members {
		if from := g.store.Lookup(m); from != nil {
			t.Append(from, 0, len(from.Rules))
		}
	}
	return t
}

// closed returns the replacement of a pack that is too big: behind the tables without a policy, it denies packets from all sources that the
// pack's rules name.
func (g *Packs) closed(p *pack) *table.Table {
	t, cause := &table.Table{Name: p.name}, &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "too many rules"}
	sources := map[netip.Prefix]struct{}{}
	for _, m := range p.members {
		from := g.store.Lookup(m)
		if from == nil {
			continue
		}
		if len(sources) == 0 && g.store.Fixed(m) == from && len(t.Rules)+len(from.Rules) <= g.segs.Most/2 {
			t.Append(from, 0, len(from.Rules))
			t.Egress = t.Egress || from.Egress
			continue
		}
		for i := range from.Rules {
			sources[from.Rules[i].Src] = struct{}{}
		}
	}
	for _, f := range match.Families {
		list := slices.DeleteFunc(slices.SortedFunc(maps.Keys(sources), netset.Compare), func(n netip.Prefix) bool { return match.FamilyOf(n.Addr()) != f })
		if len(list) > mostSources || slices.Contains(list, f.All()) {
			list = []netip.Prefix{f.All()}
		}
		for _, src := range list {
			t.Add(match.Atom{Verb: match.Deny, Src: src, Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause)
		}
	}
	return t
}

// mostSources bounds what a closed pack lists.
const mostSources = 1024

// Repack rewrites packs whose members changed, and removes those that no list has. It reports whether one became too big, or fits
// again: then lists must be made again.
func (g *Packs) Repack(used func(name string) bool) (relist bool) {
	changed := map[*pack]struct{}{}
	for name := range g.store.Changed() {
		for p := range g.ofTable[name] {
			changed[p] = struct{}{}
		}
	}
	for p := range changed {
		if used(p.name) {
			was := p.over
			g.store.Fix(g.packTable(p))
			relist = relist || was != p.over
		}
	}
	for name := range g.all {
		if used(name) {
			continue
		}
		g.unpack(name)
		g.store.Forget(name)
	}
	return relist
}
