package vpp

import (
	"fmt"
	"strconv"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/classify"
	"go.fd.io/govpp/binapi/vlib"
)

// classifier is the shadow of VPP's classifier: its tables, and their attachments.
type classifier struct {
	tables shadow[uint32, classTable, classChange]
	// attached has all attachments that were shown or made. An attachment of a kind that was never shown is unknown.
	attached shadow[classPlace, attachment, attachment]
	shown    map[string]bool      // by kind of place
	entries  map[uint32]classHeap // of existing tables made on this connection
}

// classTable is a table and the next table in its chain.
type classTable struct {
	there bool
	next  uint32
	blind bool // next is unknown
}

func (t classTable) nothing() bool { return !t.there }

// classChange sets a table's next table, or removes the table.
type classChange struct {
	gone bool
	next uint32
}

func (c classChange) applyTo(t classTable) classTable {
	if c.gone {
		return classTable{}
	}
	return classTable{there: true, next: c.next}
}

// classPlace is a direction and family of an interface, in VPP's words: "in ip4".
type classPlace struct {
	kind string
	swIf uint32
}

// attachment is the table at a place.
type attachment struct {
	there bool
	table uint32
}

func (a attachment) nothing() bool                     { return !a.there }
func (a attachment) applyTo(was attachment) attachment { return a }

// classHeap is a table's number of entries, and the size of its heap, in bytes.
type classHeap struct{ count, heap uint32 }

// entryBytes is the most heap that one entry was seen to take (executed on VPP 24.06 and 25.10).
const entryBytes = 1200

const noTable = ^uint32(0)

// classAttached returns the places that a message concerns.
func classAttached(msg api.Message) (swIf uint32, tables map[string]uint32, add bool) {
	switch m := msg.(type) {
	case *classify.InputACLSetInterface:
		return uint32(m.SwIfIndex), map[string]uint32{"in ip4": m.IP4TableIndex, "in ip6": m.IP6TableIndex}, m.IsAdd
	case *classify.OutputACLSetInterface:
		return uint32(m.SwIfIndex), map[string]uint32{"out ip4": m.IP4TableIndex, "out ip6": m.IP6TableIndex}, m.IsAdd
	}
	return 0, nil, false
}

func classKinds() [4]string { return [4]string{"in ip4", "in ip6", "out ip4", "out ip6"} }

// classShown returns the kind of place whose tables a command shows.
func classShown(cmd string) (kind string, ok bool) {
	for _, kind := range classKinds() {
		direction, family, _ := strings.Cut(kind, " ")
		if cmd == "show "+direction+"acl type "+family {
			return kind, true
		}
	}
	return "", false
}

func (c *classifier) sent(msg api.Message) {
	switch m := msg.(type) {
	case *classify.ClassifyAddDelTable:
		if m.TableIndex != noTable {
			c.tables.sendOp(m.TableIndex, classChange{gone: !m.IsAdd, next: m.NextTableIndex})
		}
	case *classify.ClassifyAddDelSession:
		if e, made := c.entries[m.TableIndex]; made && m.IsAdd {
			e.count++
			c.entries[m.TableIndex] = e
		}
	default:
		swIf, tables, add := classAttached(msg)
		for kind, t := range tables {
			if t != noTable {
				c.attached.sendOp(classPlace{kind, swIf}, attachment{add, t})
			}
		}
	}
}

func (c *classifier) answered(msg api.Message, reply Reply) {
	ok := reply.Err == nil
	switch m := msg.(type) {
	case *classify.ClassifyAddDelTable:
		if m.TableIndex != noTable {
			c.tables.settleOp(m.TableIndex, ok)
		}
		c.made(m, reply)
	case *classify.ClassifyAddDelSession:
		if e, made := c.entries[m.TableIndex]; made && ok != m.IsAdd && e.count > 0 { // refused, or removed
			e.count--
			c.entries[m.TableIndex] = e
		}
	case *classify.ClassifyTableIds:
		if r, is := reply.Msg.(*classify.ClassifyTableIdsReply); ok && is {
			c.listed(r.Ids)
		}
	case *classify.ClassifyTableInfo:
		if r, is := reply.Msg.(*classify.ClassifyTableInfoReply); ok && is {
			c.tables.setState(r.TableID, classTable{there: true, next: r.NextTableIndex})
		}
	case *vlib.CliInband:
		kind, shows := classShown(m.Cmd)
		if r, is := reply.Msg.(*vlib.CliInbandReply); ok && is && shows {
			c.showed(kind, r.Reply)
		}
	default:
		swIf, tables, _ := classAttached(msg)
		for kind, t := range tables {
			if t != noTable {
				c.attached.settleOp(classPlace{kind, swIf}, ok)
			}
		}
	}
}

// made records a table that VPP has made, also under the index of a deleted one, or has deleted.
func (c *classifier) made(m *classify.ClassifyAddDelTable, reply Reply) {
	r, is := reply.Msg.(*classify.ClassifyAddDelTableReply)
	if !m.IsAdd && reply.Err == nil {
		delete(c.entries, m.TableIndex)
	}
	if reply.Err != nil || !is || !m.IsAdd || r.NewTableIndex == m.TableIndex {
		return
	}
	c.tables.setState(m.TableIndex, classTable{})
	c.tables.setState(r.NewTableIndex, classTable{there: true, next: m.NextTableIndex})
	if c.entries == nil {
		c.entries = map[uint32]classHeap{}
	}
	c.entries[r.NewTableIndex] = classHeap{heap: m.MemorySize}
}

func (c *classifier) listed(ids []uint32) {
	found := map[uint32]classTable{}
	for _, id := range ids {
		if t, _ := c.tables.flying(id); t.there {
			found[id] = t
		} else {
			found[id] = classTable{there: true, next: noTable, blind: true}
		}
	}
	c.tables.replace(func(classTable) bool { return true }, found)
}

func (c *classifier) showed(kind, text string) {
	all, err := AttachedTables(text)
	if err != nil {
		return
	}
	found := map[classPlace]attachment{}
	for swIf, t := range all {
		found[classPlace{kind, swIf}] = attachment{true, t}
	}
	for k, cell := range c.attached.cells { // other kinds stay
		if k.kind != kind && cell.acked.there {
			found[k] = cell.acked
		}
	}
	c.attached.replace(func(attachment) bool { return true }, found)
	if c.shown == nil {
		c.shown = map[string]bool{}
	}
	c.shown[kind] = true
}

// AttachedTables reads the answer to `show inacl type ip4` and similar commands: a heading and rows of sw_if_index, table
// and name, or a text that there are none (in_out_acl.c show_in_out_acl_command_fn, VPP 24.06 to 26.06). It returns tables
// by sw_if_index.
func AttachedTables(text string) (map[uint32]uint32, error) {
	out, understood := map[uint32]uint32{}, false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "No" || f[0] == "Intfc":
			understood = true
		default:
			swIf, err := strconv.ParseUint(f[0], 10, 32)
			table, err2 := strconv.ParseUint(strings.Join(f[1:min(2, len(f))], ""), 10, 32)
			if err != nil || err2 != nil {
				return nil, fmt.Errorf("attached classify tables: %q is not understood", strings.TrimSpace(line))
			}
			out[uint32(swIf)] = uint32(table)
		}
	}
	if !understood {
		return nil, fmt.Errorf("attached classify tables: %.60q is not understood", text)
	}
	return out, nil
}

// leads returns what refers to a table, if all outstanding messages succeed.
func (c *classifier) leads(to uint32) string {
	for p, cell := range c.attached.cells {
		if cell.sent.there && cell.sent.table == to {
			return fmt.Sprintf("table %d is attached: %s of interface %d", to, p.kind, p.swIf)
		}
	}
	for index, cell := range c.tables.cells {
		switch {
		case index == to || !cell.sent.there:
		case cell.sent.blind:
			return fmt.Sprintf("the next table of table %d is not known: dump it first", index)
		case cell.sent.next == to:
			return fmt.Sprintf("the next table of table %d is table %d", index, to)
		}
	}
	return ""
}

// led reports whether something may refer to a table if some outstanding messages fail.
func (c *classifier) led(to uint32) bool {
	for _, cell := range c.attached.cells {
		for _, a := range cell.ops {
			if a.there && a.table == to || cell.acked.there && cell.acked.table == to {
				return true
			}
		}
	}
	for index, cell := range c.tables.cells {
		for _, op := range cell.ops {
			if index != to && (!op.gone && op.next == to || cell.acked.there && cell.acked.next == to) {
				return true
			}
		}
	}
	return false
}

func classifyRules() []Rule {
	return []Rule{
		{
			Name: "classify-chain", Messages: []string{"classify_add_del_table"},
			Source: "vnet_classify.c vnet_classify_delete_table_index, VPP 24.06",
			Harm:   "del_chain frees the tables behind as well, be they attached or led to by others: the next packet kills VPP",
			judge: func(_ *Guard, msg api.Message) string {
				if m := msg.(*classify.ClassifyAddDelTable); !m.IsAdd && m.DelChain {
					return "would delete a whole chain: delete its tables one by one"
				}
				return ""
			},
		},
		{
			Name: "classify-in-use", Messages: []string{"classify_add_del_table"}, Stateful: true,
			Source: "ip_in_out_acl.c, vnet_classify.c vnet_classify_delete_table_index, VPP 24.06 (executed)",
			Harm:   "a table that is attached, or that another leads to, is freed: the next packet kills VPP",
			judge: func(g *Guard, msg api.Message) string {
				m := msg.(*classify.ClassifyAddDelTable)
				switch {
				case m.IsAdd:
					return ""
				case len(g.classifier.shown) < 4:
					return "the attachments of tables are not known: show inacl and outacl, of type ip4 and ip6"
				}
				return g.classifier.leads(m.TableIndex)
			},
			hinges: func(g *Guard, msg api.Message) bool {
				m := msg.(*classify.ClassifyAddDelTable)
				return !m.IsAdd && g.classifier.led(m.TableIndex)
			},
		},
		stateful("classify-heap", "vnet_classify.c vnet_classify_add_del (no check of memory_size), VPP 24.06 (executed)",
			"an entry for which the heap of its table has no room kills VPP", func(g *Guard, m *classify.ClassifyAddDelSession) string {
				e, made := g.classifier.entries[m.TableIndex]
				small := made && m.IsAdd && (e.count+1)*entryBytes > e.heap
				return when(small, "table %d was made with %d bytes, which may not do for %d entries", m.TableIndex, e.heap, e.count+1)
			}),
		{
			Name: "classify-attached", Messages: []string{"input_acl_set_interface", "output_acl_set_interface"}, Stateful: true,
			Source: "in_out_acl.c vnet_set_in_out_acl_intfc, VPP 24.06 (executed)",
			Harm:   "VPP answers 0 and attaches nothing where its records have a table, be it of an interface that went: packets are not asked",
			judge: func(g *Guard, msg api.Message) string {
				swIf, tables, add := classAttached(msg)
				for _, kind := range classKinds() {
					t, about := tables[kind]
					has := g.classifier.attached.expectedState(classPlace{kind, swIf})
					switch {
					case !add || !about || t == noTable:
					case !g.classifier.shown[kind]:
						return "the attachments of tables are not known: show inacl and outacl, of type ip4 and ip6"
					case has.there:
						return fmt.Sprintf("%s of interface %d has table %d", kind, swIf, has.table)
					}
				}
				return ""
			},
		},
	}
}
