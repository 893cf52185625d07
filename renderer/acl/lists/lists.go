package lists

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Place is a table in a list.
type Place struct {
	Table       string
	Cause       *dataplane.Cause // cause of all its rules; nil: the table's causes
	Denies      bool             // its rules deny
	Mixed       bool             // only some rules deny
	SourceCheck bool             // it is the source check
	Egress      bool             // a part of the egress of the packets' source, at its interface or where they leave
	Dials       bool             // it permits packets to addresses that VPP translates: they may reach any interface
	Sources     []netip.Addr     // its rules decide only about these sources, although they do not name them; nil: they name their sources
	// Repeats: it denies only what the list of the packet's receiver denies, too, unless a session there passes it. So it adds nothing to what
	// two hooks decide together, and has no effect that an interim state depends on. Or it denies what no other hook evaluates.
	Repeats bool
	// Interim: it permits only what the lists before and after a change permit, by different rules. So it opens nothing, and closes nothing that
	// the other tables of the list do not close.
	Interim bool
	Served  *law.Ports // replaces Lists.Served; nil: does not
}

// Lists are the lists of one interface.
type Lists struct {
	In, Out []Place
	Filter  *table.Filter // of SCTP, beside them; nil: none
	Served  *law.Ports    // high ports of the pod; nil: none
	Check   *Check        // of sources, in front of In; nil: none
}

// Each calls f for each place.
func (l Lists) Each(f func(Place)) {
	for _, p := range slices.Concat(l.In, l.Out) {
		f(p)
	}
}

// Contains reports whether f is true for one of the places.
func (l Lists) Contains(f func(Place) bool) bool {
	return slices.ContainsFunc(l.In, f) || slices.ContainsFunc(l.Out, f)
}

// Flagged sets the flags of places.
func Flagged(list []Place, egress, dials bool) []Place {
	for k := range list {
		list[k].Egress, list[k].Dials = egress, dials
	}
	return list
}

// Places returns the places of uses, for packets that pods, or the node, send (egress) or receive.
func Places(uses []table.Use, egress bool) []Place {
	var out []Place
	for _, u := range uses {
		switch {
		case u.Seg != nil:
			for _, t := range u.Seg.Tables {
				out = append(out, Place{Table: t.Name, Denies: t.Denies()})
			}
		case u.Verb == match.Deny:
			out = append(out, Place{Table: table.DenyAll, Cause: u.Cause, Denies: true})
		default:
			out = append(out, Place{Table: table.PermitAll(egress), Cause: u.Cause})
		}
	}
	return out
}

// Filled returns the place of a table without a segment, if it has a rule.
func Filled(s *table.Store, name string) []Place {
	t := s.Fixed(name)
	if t == nil || len(t.Rules) == 0 {
		return nil
	}
	return []Place{{Table: name, Denies: t.Denies()}}
}

// Names returns the names of the tables of a list.
func Names(list []Place) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.Table
	}
	return out
}

// ServedAt returns the served ports under whose law a list has a table.
func (l *Lists) ServedAt(p Place) *law.Ports {
	if p.Served != nil {
		return p.Served
	}
	return l.Served
}

// WireNames returns VPP's names of the tables of a list.
func (l *Lists) WireNames(list []Place) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = table.WireName(p.Table, l.ServedAt(p))
	}
	return out
}

// Direction returns the list for packets that enter VPP, or that leave it (output).
func (l *Lists) Direction(output bool) []Place {
	if output {
		return l.Out
	}
	return l.In
}

// Repeats reports whether a place of the input list repeats what the packet's receiver decides.
func (l *Lists) Repeats(place int) bool {
	return place >= 0 && place < len(l.In) && l.In[place].Repeats
}

// SameTables reports whether two pairs of lists have the same tables, under the same laws.
func SameTables(a, b Lists) bool {
	same := func(a, b Place) bool { return a.Table == b.Table && a.Served.Key() == b.Served.Key() }
	return a.Served.Key() == b.Served.Key() && slices.EqualFunc(a.In, b.In, same) && slices.EqualFunc(a.Out, b.Out, same)
}

// PlaceTable returns the place's table.
func PlaceTable(p Place) string { return p.Table }

// None reports whether a list lets everything pass.
func None(list []Place) bool { return len(list) == 0 || table.PermitsAll(list[0].Table) }

// Deciding returns a list without the places that repeat what the packet's receiver decides, or what the states before and after decide.
func Deciding(list []Place) []Place {
	repeats := func(p Place) bool { return p.Repeats || p.Interim }
	if !slices.ContainsFunc(list, repeats) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), repeats)
}

// CommonTables returns the tables of both lists, and those of either list that deny.
func CommonTables(old, now []Place) []Place {
	switch {
	case None(now) && len(old) > 0: // a table may precede it, so that it must not be empty
		return old
	case None(old), None(now):
		return now
	}
	var out []Place
	seen := map[string]bool{} // a table that changed its place occurs twice: the first counts if it denies
	conflict.Merge(old, now, PlaceTable, func(p Place, had, will bool) {
		keep := had && will || p.Denies && !p.Mixed
		if p.Mixed && !keep {
			p, keep = Place{Table: table.DenyAll, Denies: true, Cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}}, true
		}
		if keep && !seen[p.Table] && !seen[table.DenyAll] {
			seen[p.Table] = true
			out = append(out, p)
		}
	})
	return out
}

// Unchecked returns the part of an input list behind its source check.
func Unchecked(list []Place) []Place {
	if len(list) > 0 && list[0].SourceCheck {
		return list[1:]
	}
	return list
}

// shut returns a list that lets nothing pass.
func shut() []Place {
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}
	return []Place{{Table: table.DenyAll, Denies: true, Cause: cause}}
}

// Answers permits all packets that pods, or the node, send (egress) or receive. At the host's interface, packets that leave VPP are for the
// node.
func Answers(egress bool) Place {
	return Place{Table: table.PermitAll(egress), Cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "to let answers pass"}}
}

// Origins returns the origins of tables and of the steps behind them.
func Origins(tables []Place, uses []table.Use) []table.Origin {
	out := make([]table.Origin, 0, len(tables)+len(uses))
	for _, p := range tables {
		out = append(out, table.Origin{Table: p.Table})
	}
	for _, u := range uses {
		out = append(out, table.Origin{Use: u})
	}
	return out
}
