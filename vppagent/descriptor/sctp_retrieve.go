package descriptor

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
)

// classDumps asks for all tables and what is attached, and then for what those answers lead to.
func classDumps(w *World, known *Dump) []Request {
	out := []Request{ask(idClassTables, &classify.ClassifyTableIds{})}
	for _, p := range classPlaces(0) {
		out = append(out, ask(p.show().Cmd, p.show()))
	}
	if !known.Has(idClassTables) {
		return out
	}
	return append(out, moreClassDumps(w, known)...)
}

// classPlaces are those of an interface.
func classPlaces(swIf uint32) []classPlace {
	return []classPlace{{swIf, true, false}, {swIf, true, true}, {swIf, false, false}, {swIf, false, true}}
}

// moreClassDumps asks for each table, then for the entries of ours, and whether the interfaces they are attached to ask them.
func moreClassDumps(w *World, d *Dump) (out []Request) {
	ids, err := replied[*classify.ClassifyTableIdsReply](d, idClassTables)
	if err != nil {
		return nil
	}
	ours := map[uint32]bool{}
	for _, index := range ids.Ids {
		id := fmt.Sprintf("%s %d", idTable, index)
		if !d.Has(id) {
			out = append(out, ask(id, &classify.ClassifyTableInfo{TableID: index}))
			continue
		}
		if m, _ := tableInfo(d, id); m != nil && m.MissNextIndex == classTag { // learnClass tells of an error
			ours[index] = true
			out = append(out, dump(fmt.Sprintf("%s %d", idEntries, index), &classify.ClassifySessionDump{TableID: index}))
		}
	}
	if len(ours) == 0 {
		return out
	}
	asked := map[uint32]bool{}
	for _, p := range classPlaces(0) {
		for swIf, table := range answeredTables(d, p) {
			if i := w.byIdx[swIf]; i != nil && ours[table] && !asked[swIf] {
				asked[swIf] = true
				m := showFeatures(i.VPPName)
				out = append(out, ask(m.Cmd, m))
			}
		}
	}
	return out
}

// tableInfo is nil for a table that went meanwhile.
func tableInfo(d *Dump, id string) (*classify.ClassifyTableInfoReply, error) {
	m, err := replied[*classify.ClassifyTableInfoReply](d, id)
	if r, refused := errors.AsType[*vpp.Retval](err); refused && r.Code == noClassTable {
		return nil, nil
	}
	return m, err
}

// answeredTables is what VPP's records have attached at places like p, by sw_if_index.
func answeredTables(d *Dump, p classPlace) map[uint32]uint32 {
	r, err := d.reply(p.show().Cmd)
	if err != nil {
		return nil
	}
	all, _ := shownTables(r) // learnClass tells of an error
	return all
}

// learnClass takes over what the dumps show.
func (w *World) learnClass(d *Dump) error {
	ids, err := replied[*classify.ClassifyTableIdsReply](d, idClassTables)
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
		entries, err := details[*classify.ClassifySessionDetails](d, fmt.Sprintf("%s %d", idEntries, index))
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
		r, err := d.reply(p.show().Cmd)
		if err != nil {
			return err
		}
		all, err := shownTables(r)
		if err != nil {
			return err
		}
		for p.swIf = range all {
			c.at[p] = all[p.swIf]
			if c.live[p], err = w.asks(d, p, c); err != nil {
				return err
			}
		}
	}
	c.left, c.swIf = c.unreached(), w.class.swIf
	w.class = c
	return nil
}

// asks reports that packets do ask the table of ours that is attached.
func (w *World) asks(d *Dump, p classPlace, c classWorld) (bool, error) {
	i := w.byIdx[p.swIf]
	if _, ours := c.tables[c.at[p]]; !ours || i == nil {
		return false, nil
	}
	r, err := d.reply(showFeatures(i.VPPName).Cmd)
	if err != nil {
		return false, err
	}
	return p.enabled(r)
}

// retrieveFilters finds all that is attached of ours.
func retrieveFilters(w *World, d *Dump, c Candidates) ([]Found, error) {
	if err := w.learnClass(d); err != nil {
		return nil, err
	}
	names := map[uint32]string{} // as candidates call them
	for _, wantedOnes := range []bool{true, false} {
		c.Each(func(_ string, state any, wanted bool) {
			name := state.(*sctpFilter).iface
			if i, ok := w.Interface(name); ok && wanted == wantedOnes && (names[i.Index] == "" || wanted && name < names[i.Index]) {
				names[i.Index] = name
			}
		})
	}
	var out []Found
	for _, i := range w.sorted() {
		for _, input := range []bool{true, false} {
			four, six := classPlace{i.Index, input, false}, classPlace{i.Index, input, true}
			if text := w.foreignTables(i.Name, four, six); text != "" {
				out = append(out, Found{Foreign: true, Text: text})
			}
			if w.class.ours(four) || w.class.ours(six) {
				f := &sctpFilter{iface: cmp.Or(names[i.Index], i.Name), input: input, v4: w.class.program(four), v6: w.class.program(six)}
				w.class.swIf[f.key()] = i.Index
				out = append(out, Found{Key: f.key(), Base: kv.SCTPPortsKey(f.iface), State: f, Ours: true})
			}
		}
	}
	left := &sctpFilter{left: w.class.left}
	for at := range w.class.at {
		if w.class.dead(w, at) {
			left.dead = append(left.dead, at)
		}
	}
	if len(left.left)+len(left.dead) > 0 {
		slices.SortFunc(left.dead, func(a, b classPlace) int {
			return cmp.Or(cmp.Compare(a.swIf, b.swIf), strings.Compare(a.String(), b.String()))
		})
		out = append(out, Found{Key: sctpLeftKey, State: left, Ours: true})
	}
	return out, nil
}

func (c classWorld) ours(p classPlace) bool {
	root, there := c.at[p]
	_, ours := c.tables[root]
	return there && ours
}

// foreignTables tells what others attached to an interface; "" if nothing.
func (w *World) foreignTables(name string, places ...classPlace) string {
	var out []string
	for _, p := range places {
		if index, there := w.class.at[p]; there && !w.class.ours(p) {
			out = append(out, fmt.Sprintf("%sput %s %d", p.direction(), p.family(), index))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("interface %s: classify table %s", name, strings.Join(out, ", "))
}
