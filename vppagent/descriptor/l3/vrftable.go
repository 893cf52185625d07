package l3

import (
	"errors"
	"fmt"

	"go.fd.io/govpp/binapi/ip"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const idTables = "ip_table_dump"

// vrfTable is a FIB table of one address family. VPP keeps a name with it, which carries our tag.
type vrfTable struct {
	id    uint32
	v6    bool
	label string
	// adopted reports that the table is not ours: others may depend on it, and the agent never deletes it. Table 0 always is adopted.
	adopted bool
}

// VrfTable describes ligato's VrfTable.
func VrfTable() *descriptor.Descriptor {
	return descriptor.Spec[*l3.VrfTable, *vrfTable]{
		Name: "vrf-table", Prefix: "config/vpp/v2/vrf-table/", Tagged: true,
		Compile: func(_ string, m *l3.VrfTable) (*vrfTable, error) {
			t := &vrfTable{id: m.GetId(), v6: m.GetProtocol() == l3.VrfTable_IPV6, label: m.GetLabel()}
			switch {
			case m.GetFlowHashSettings() != nil:
				return nil, errors.New("flow_hash_settings: not supported")
			case t.id == descriptor.None:
				return nil, fmt.Errorf("id: %d means every table", descriptor.None)
			case len(descriptor.TagOwner)+len("v:")+len(t.label) > descriptor.MaxTag:
				return nil, fmt.Errorf("label: longer than %d bytes", descriptor.MaxTag-len(descriptor.TagOwner)-len("v:"))
			}
			return t, nil
		},
		Message: func(t *vrfTable) *l3.VrfTable {
			m := &l3.VrfTable{Id: t.id, Label: t.label}
			if t.v6 {
				m.Protocol = l3.VrfTable_IPV6
			}
			return m
		},
		Equal: func(have, want *vrfTable) bool { return have.adopted || have.label == want.label },
		Create: func(_ *descriptor.World, t *vrfTable) ([]descriptor.Op, error) {
			if t.id == 0 {
				return nil, nil
			}
			return []descriptor.Op{t.tableRequest(true)}, nil
		},
		Delete: func(_ *descriptor.World, t *vrfTable) ([]descriptor.Op, error) {
			if t.id == 0 || t.adopted {
				return nil, nil
			}
			return []descriptor.Op{t.tableRequest(false)}, nil
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idTables, &ip.IPTableDump{})}
		},
		Retrieve: retrieveVRFTables,
	}.Descriptor()
}

func (t *vrfTable) tableRequest(add bool) descriptor.Op {
	return descriptor.Op{Gone: !add, Call: descriptor.Write(&ip.IPTableAddDel{
		IsAdd: add, Table: ip.IPTable{TableID: t.id, IsIP6: t.v6, Name: descriptor.NewTag("v", "", t.label)},
	})}
}

func retrieveVRFTables(_ *descriptor.World, d *descriptor.Dump, _ descriptor.Candidates) ([]descriptor.Found, error) {
	tables, err := descriptor.Details[*ip.IPTableDetails](d, idTables)
	if err != nil {
		return nil, err
	}
	var out []descriptor.Found
	for _, m := range tables {
		t := &vrfTable{id: m.Table.TableID, v6: m.Table.IsIP6}
		_, label, ours := descriptor.ParseTag(descriptor.FixedText(m.Table.Name), "v", false)
		t.label, t.adopted = label, !ours
		protocol := l3.VrfTable_IPV4
		if t.v6 {
			protocol = l3.VrfTable_IPV6
		}
		out = append(out, descriptor.Found{Key: kv.VrfTableKey(t.id, protocol), State: t, Ours: ours})
	}
	return out, nil
}
