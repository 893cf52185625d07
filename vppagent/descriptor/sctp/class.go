package sctp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/classify"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/classifier"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	idClassTables = "classify_table_ids"
	idTable       = "classify_table_info"
	idEntries     = "classify_session_dump"

	// classTag is the next node of a packet that no entry of a table matches: it continues on its path, as with any number that is no
	// node's (ip_in_out_acl.c, VPP 24.06 to 25.10). VPP keeps no tag on tables; this number marks ours.
	classTag = 0x5c7b0a01
	// classDrop and classPass are the next nodes of a packet that an entry matches. VPP keeps 16 bits.
	classDrop, classPass = 0, descriptor.None
	classEnd             = 2 // the first number that is no node of inacl and outacl
	// noClassTable is CLASSIFY_TABLE_NOT_FOUND.
	noClassTable = -91
	// Bytes of the heap of a table. VPP aborts when the heap is exhausted. It has used up to 1,200 bytes for an entry when all
	// entries were in one bucket; these values suffice for 4,096 such entries (executed on 24.06 and 25.10).
	classHeap, classEntry = 64 << 10, 4 << 10
)

// classPlace is where a table can be attached.
type classPlace struct {
	swIf      uint32
	input, v6 bool
}

func (p classPlace) family() string {
	if p.v6 {
		return "ip6"
	}
	return "ip4"
}

func (p classPlace) direction() string {
	if p.input {
		return "in"
	}
	return "out"
}

func (p classPlace) String() string {
	return fmt.Sprintf("%sput of interface %d (%s)", p.direction(), p.swIf, p.family())
}

// set attaches or detaches a table.
func (p classPlace) set(table uint32, add bool) vpp.Call {
	four, six := table, uint32(descriptor.None)
	if p.v6 {
		four, six = six, four
	}
	if p.input {
		return descriptor.Write(&classify.InputACLSetInterface{SwIfIndex: interface_types.InterfaceIndex(p.swIf), IP4TableIndex: four, IP6TableIndex: six, L2TableIndex: descriptor.None, IsAdd: add})
	}
	return descriptor.Write(&classify.OutputACLSetInterface{SwIfIndex: interface_types.InterfaceIndex(p.swIf), IP4TableIndex: four, IP6TableIndex: six, L2TableIndex: descriptor.None, IsAdd: add})
}

// show asks for the attached tables. No message shows the output direction.
func (p classPlace) show() *vlib.CliInband {
	return &vlib.CliInband{Cmd: "show " + p.direction() + "acl type " + p.family()}
}

// shown returns the table of the place in the answer.
func (p classPlace) shown(r vpp.Reply) (index uint32, there bool, err error) {
	all, err := shownTables(r)
	index, there = all[p.swIf]
	return index, there, err
}

// shownTables parses the answer to show.
func shownTables(r vpp.Reply) (map[uint32]uint32, error) {
	text, err := descriptor.CLIText(r)
	if err != nil {
		return nil, err
	}
	return vpp.AttachedTables(text)
}

// enabled parses the answer to showFeatures: arcs, and below each its nodes. After VPP deleted an interface, its records have the
// table for the next interface of that index, whose packets do not meet the table.
func (p classPlace) enabled(r vpp.Reply) (bool, error) {
	text, err := descriptor.CLIText(r)
	if err != nil {
		return false, err
	}
	arc, here := p.family()+"-unicast:", false
	if !p.input {
		arc = p.family() + "-output:"
	}
	for line := range strings.Lines(text) {
		word := strings.TrimSpace(line)
		if strings.HasSuffix(word, ":") {
			here = word == arc
		} else if here && word == p.family()+"-"+p.direction()+"acl" {
			return true, nil
		}
	}
	return false, nil
}

// classWorld is the known state of the classifier.
type classWorld struct {
	known  bool                  // a dump has run
	tables map[uint32]classTable // ours
	at     map[classPlace]uint32 // the tables in VPP's records, of any owner
	live   map[classPlace]bool   // packets do meet the table; ours only
	left   []uint32              // our tables that nothing leads to
	swIf   map[string]uint32     // of the interfaces of filters, by their keys
}

// classTable is a table of ours, with the next table.
type classTable struct {
	classifier.Table
	next uint32
}

func newClassWorld() classWorld {
	return classWorld{tables: map[uint32]classTable{}, at: map[classPlace]uint32{}, live: map[classPlace]bool{}, swIf: map[string]uint32{}}
}

func (c classWorld) clone() classWorld {
	return classWorld{c.known, maps.Clone(c.tables), maps.Clone(c.at), maps.Clone(c.live), slices.Clone(c.left), maps.Clone(c.swIf)}
}

// chain returns the tables from one on, up to the first foreign one.
func (c classWorld) chain(from uint32) (out []uint32) {
	for {
		t, ours := c.tables[from]
		if !ours || slices.Contains(out, from) {
			return out
		}
		out, from = append(out, from), t.next
	}
}

// decides reports that packets of both families meet the filter with a key.
func (c classWorld) decides(key string) bool {
	swIf, known := c.swIf[key]
	input := strings.HasPrefix(key, kv.SCTPFilterKey("", true))
	return known && c.live[classPlace{swIf, input, false}] && c.live[classPlace{swIf, input, true}]
}

// program returns the program of a place; nil: no table of ours, or packets do not meet it.
func (c classWorld) program(at classPlace) (out classifier.Program) {
	root, there := c.at[at]
	if !there || !c.live[at] {
		return nil
	}
	for _, index := range c.chain(root) {
		out = append(out, c.tables[index].Table)
	}
	return out
}

func addTable(t classifier.Table, next uint32) *classify.ClassifyAddDelTable {
	n := uint32(len(t.Entries))
	return &classify.ClassifyAddDelTable{
		IsAdd: true, TableIndex: descriptor.None, NextTableIndex: next, MissNextIndex: classTag, CurrentDataFlag: 1,
		Nbuckets: 2 * n, MemorySize: classHeap + classEntry*n,
		MatchNVectors: uint32(len(t.Mask) / 16), MaskLen: uint32(len(t.Mask)), Mask: []byte(t.Mask),
	}
}

func delTable(index uint32) *classify.ClassifyAddDelTable {
	return &classify.ClassifyAddDelTable{TableIndex: index, NextTableIndex: descriptor.None, MissNextIndex: descriptor.None}
}

func session(table uint32, e classifier.Entry, add bool) *classify.ClassifyAddDelSession {
	m := &classify.ClassifyAddDelSession{IsAdd: add, TableIndex: table, HitNextIndex: classDrop, MatchLen: uint32(len(e.Match)), Match: []byte(e.Match)}
	if e.Pass {
		m.HitNextIndex = classPass
	}
	return m
}

// sameTable refuses the reply to an update that made another table: VPP does that when the named table does not exist any more.
func sameTable(r vpp.Reply, index uint32) error {
	if got := r.Msg.(*classify.ClassifyAddDelTableReply).NewTableIndex; got != index {
		return fmt.Errorf("classify table %d is gone", index)
	}
	return nil
}

// layTables makes tables from the last to the first, each with all its entries, in front of next; then receives the first table.
func layTables(w *descriptor.World, p classifier.Program, next uint32, then func(head uint32) []descriptor.Op) []descriptor.Op {
	if len(p) == 0 {
		return then(next)
	}
	t, rest := p[len(p)-1], p[:len(p)-1]
	return []descriptor.Op{{Call: descriptor.Write(addTable(t, next)), Then: func(r vpp.Reply) (ops []descriptor.Op) {
		index := r.Msg.(*classify.ClassifyAddDelTableReply).NewTableIndex
		factsOf(w).class.tables[index] = classTable{t, next}
		missing := len(t.Entries)
		for _, e := range t.Entries {
			ops = append(ops, descriptor.Op{Call: descriptor.Write(session(index, e, true)), Then: func(vpp.Reply) []descriptor.Op {
				if missing--; missing > 0 {
					return nil
				}
				return layTables(w, rest, index, then)
			}})
		}
		return ops
	}}}
}

// dead reports that the interface of a place was deleted and that a chain of ours is behind its root.
func (c classWorld) dead(w *descriptor.World, at classPlace) bool {
	root, there := c.at[at]
	t, ours := c.tables[root]
	return there && ours && t.next != descriptor.None && w.At(at.swIf) == nil
}

// inherits reports that an interface has the index of a deleted one, and that VPP's records have a table of ours for it.
func (c classWorld) inherits(w *descriptor.World) bool {
	for at := range c.at {
		if c.ours(at) && !c.live[at] && w.At(at.swIf) != nil {
			return true
		}
	}
	return false
}

// unreached returns the tables of ours that nothing leads to, each before those it leads to.
func (c classWorld) unreached() (out []uint32) {
	reached, led := map[uint32]bool{}, map[uint32]bool{}
	for _, root := range c.at {
		for _, index := range c.chain(root) {
			reached[index] = true
		}
	}
	for _, t := range c.tables {
		led[t.next] = true
	}
	for _, index := range slices.Sorted(maps.Keys(c.tables)) {
		if led[index] {
			continue
		}
		for _, i := range c.chain(index) {
			if !reached[i] && !slices.Contains(out, i) {
				out = append(out, i)
			}
		}
	}
	return out
}

// dropLeft removes the tables that nothing leads to.
func dropLeft(w *descriptor.World) []descriptor.Op {
	left := factsOf(w).class.left
	factsOf(w).class.left = nil
	var ops []descriptor.Op
	for _, index := range left {
		ops = append(ops, dropTable(w, index))
	}
	if len(ops) == 0 {
		return nil
	}
	return descriptor.InTurn(ops)
}
