package sctp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/classify"

	"github.com/contiv-agent/contiv-agent/classifier"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// classDumps asks for all tables and attachments, and then for the objects that those answers refer to.
func classDumps(w *descriptor.World, known *descriptor.Dump) []descriptor.Request {
	out := []descriptor.Request{descriptor.AskRequest(idClassTables, &classify.ClassifyTableIds{})}
	for _, p := range classPlaces(0) {
		out = append(out, descriptor.AskRequest(p.show().Cmd, p.show()))
	}
	if !known.Has(idClassTables) {
		return out
	}
	return append(out, moreClassDumps(w, known)...)
}

// classPlaces returns the places of an interface.
func classPlaces(swIf uint32) []classPlace {
	return []classPlace{{swIf, true, false}, {swIf, true, true}, {swIf, false, false}, {swIf, false, true}}
}

// moreClassDumps asks for each table, then for the entries of ours, and whether packets of their interfaces meet them.
func moreClassDumps(w *descriptor.World, d *descriptor.Dump) (out []descriptor.Request) {
	ids, err := descriptor.Replied[*classify.ClassifyTableIdsReply](d, idClassTables)
	if err != nil {
		return nil
	}
	ours := map[uint32]bool{}
	for _, index := range ids.Ids {
		id := fmt.Sprintf("%s %d", idTable, index)
		if !d.Has(id) {
			out = append(out, descriptor.AskRequest(id, &classify.ClassifyTableInfo{TableID: index}))
			continue
		}
		if m, _ := tableInfo(d, id); m != nil && m.MissNextIndex == classTag { // learnClass reports the error
			ours[index] = true
			out = append(out, descriptor.DumpRequest(fmt.Sprintf("%s %d", idEntries, index), &classify.ClassifySessionDump{TableID: index}))
		}
	}
	if len(ours) == 0 {
		return out
	}
	asked := map[uint32]bool{}
	for _, p := range classPlaces(0) {
		for swIf, table := range answeredTables(d, p) {
			if i := w.At(swIf); i != nil && ours[table] && !asked[swIf] {
				asked[swIf] = true
				m := descriptor.ShowFeatures(i.VPPName)
				out = append(out, descriptor.AskRequest(m.Cmd, m))
			}
		}
	}
	return out
}

// tableInfo returns nil for a table that was removed meanwhile.
func tableInfo(d *descriptor.Dump, id string) (*classify.ClassifyTableInfoReply, error) {
	m, err := descriptor.Replied[*classify.ClassifyTableInfoReply](d, id)
	if r, refused := errors.AsType[*vpp.Retval](err); refused && r.Code == noClassTable {
		return nil, nil
	}
	return m, err
}

// answeredTables returns the tables that VPP's records have at places like p, by sw_if_index.
func answeredTables(d *descriptor.Dump, p classPlace) map[uint32]uint32 {
	r, err := d.Reply(p.show().Cmd)
	if err != nil {
		return nil
	}
	all, _ := shownTables(r) // learnClass reports the error
	return all
}

// learnClass stores the result of the dumps.
func learnClass(w *descriptor.World, d *descriptor.Dump) error {
	ids, err := descriptor.Replied[*classify.ClassifyTableIdsReply](d, idClassTables)
	if err != nil {
		return err
	}
	c := newClassWorld()
	c.known = true
	for _, index := range ids.Ids {
		m, err := tableInfo(d, fmt.Sprintf("%s %d", idTable, index))
		if err != nil {
			return err
		}
		if m == nil || m.MissNextIndex != classTag {
			continue
		}
		entries, err := descriptor.Details[*classify.ClassifySessionDetails](d, fmt.Sprintf("%s %d", idEntries, index))
		if err != nil {
			return err
		}
		t := classTable{classifier.Table{Mask: string(m.Mask)}, m.NextTableIndex}
		for _, e := range entries {
			t.Entries = append(t.Entries, classifier.Entry{Match: string(e.Match), Pass: e.HitNextIndex >= classEnd})
		}
		slices.SortFunc(t.Entries, func(a, b classifier.Entry) int { return strings.Compare(a.Match, b.Match) })
		c.tables[index] = t
	}
	for _, p := range classPlaces(0) {
		r, err := d.Reply(p.show().Cmd)
		if err != nil {
			return err
		}
		all, err := shownTables(r)
		if err != nil {
			return err
		}
		for p.swIf = range all {
			c.at[p] = all[p.swIf]
			if c.live[p], err = asksTable(w, d, p, c); err != nil {
				return err
			}
		}
	}
	c.left, c.swIf = c.unreached(), factsOf(w).class.swIf
	factsOf(w).class = c
	return nil
}

// asksTable reports that packets do meet the attached table of ours.
func asksTable(w *descriptor.World, d *descriptor.Dump, p classPlace, c classWorld) (bool, error) {
	i := w.At(p.swIf)
	if _, ours := c.tables[c.at[p]]; !ours || i == nil {
		return false, nil
	}
	r, err := d.Reply(descriptor.ShowFeatures(i.VPPName).Cmd)
	if err != nil {
		return false, err
	}
	return p.enabled(r)
}

// retrieveFilters finds all attachments of ours.
func retrieveFilters(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	if err := learnClass(w, d); err != nil {
		return nil, err
	}
	names := map[uint32]string{} // names in the candidates
	for _, wantedOnes := range []bool{true, false} {
		c.Each(func(_ string, state any, wanted bool) {
			name := state.(*sctpFilter).iface
			if i, ok := w.Interface(name); ok && wanted == wantedOnes && (names[i.Index] == "" || wanted && name < names[i.Index]) {
				names[i.Index] = name
			}
		})
	}
	var out []descriptor.Found
	for _, i := range w.Interfaces() {
		for _, input := range []bool{true, false} {
			four, six := classPlace{i.Index, input, false}, classPlace{i.Index, input, true}
			if text := foreignTablesText(w, i.Name, four, six); text != "" {
				out = append(out, descriptor.Found{Foreign: true, Text: text})
			}
			if factsOf(w).class.ours(four) || factsOf(w).class.ours(six) {
				f := &sctpFilter{iface: cmp.Or(names[i.Index], i.Name), input: input, v4: factsOf(w).class.program(four), v6: factsOf(w).class.program(six)}
				factsOf(w).class.swIf[f.key()] = i.Index
				out = append(out, descriptor.Found{Key: f.key(), Base: kv.SCTPPortsKey(f.iface), State: f, Ours: true})
			}
		}
	}
	left := &sctpFilter{left: factsOf(w).class.left}
	for at := range factsOf(w).class.at {
		if factsOf(w).class.dead(w, at) {
			left.dead = append(left.dead, at)
		}
	}
	if len(left.left)+len(left.dead) > 0 {
		slices.SortFunc(left.dead, func(a, b classPlace) int {
			return cmp.Or(cmp.Compare(a.swIf, b.swIf), strings.Compare(a.String(), b.String()))
		})
		out = append(out, descriptor.Found{Key: sctpLeftKey, State: left, Ours: true})
	}
	return out, nil
}

func (c classWorld) ours(p classPlace) bool {
	root, there := c.at[p]
	_, ours := c.tables[root]
	return there && ours
}

// foreignTablesText describes the attachments of other clients to an interface; "" if none.
func foreignTablesText(w *descriptor.World, name string, places ...classPlace) string {
	var out []string
	for _, p := range places {
		if index, there := factsOf(w).class.at[p]; there && !factsOf(w).class.ours(p) {
			out = append(out, fmt.Sprintf("%sput %s %d", p.direction(), p.family(), index))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("interface %s: classify table %s", name, strings.Join(out, ", "))
}
