package vpp

import (
	"maps"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/classify"
	"go.fd.io/govpp/binapi/vlib"
)

// newTable makes table 7, whose next table is next.
func newTable(next uint32) api.Message {
	return &classify.ClassifyAddDelTable{IsAdd: true, TableIndex: noTable, NextTableIndex: next, MemorySize: 3000}
}

func lead(table, next uint32) api.Message {
	return &classify.ClassifyAddDelTable{IsAdd: true, TableIndex: table, NextTableIndex: next}
}

func dropTable(table uint32) *classify.ClassifyAddDelTable {
	return &classify.ClassifyAddDelTable{TableIndex: table, NextTableIndex: noTable}
}

func newEntry(table uint32, add bool) api.Message {
	return &classify.ClassifyAddDelSession{IsAdd: add, TableIndex: table}
}

func inTable(add bool, at interfaceIndex, v4, v6 uint32) api.Message {
	return &classify.InputACLSetInterface{IsAdd: add, SwIfIndex: at, IP4TableIndex: v4, IP6TableIndex: v6, L2TableIndex: noTable}
}

func outTable(add bool, at interfaceIndex, v4 uint32) api.Message {
	return &classify.OutputACLSetInterface{IsAdd: add, SwIfIndex: at, IP4TableIndex: v4, IP6TableIndex: noTable, L2TableIndex: noTable}
}

// listedTables is answered with table 9, tableInfo with a table whose next table is 5.
var (
	listedTables = step{&classify.ClassifyTableIds{}, true}
	tableInfo    = step{&classify.ClassifyTableInfo{TableID: 9}, true}
)

// attachedShown returns the four show commands; input IPv4 is answered with table 4 on interface 2, the others with no
// table.
func attachedShown(then ...step) (out []step) {
	for _, cmd := range []string{"show inacl type ip4", "show inacl type ip6", "show outacl type ip4", "show outacl type ip6"} {
		out = append(out, step{&vlib.CliInband{Cmd: cmd}, true})
	}
	return append(out, then...)
}

// classifyAnswer returns VPP's answer to these messages; nil: empty.
func classifyAnswer(msg api.Message) api.Message {
	switch m := msg.(type) {
	case *classify.ClassifyAddDelTable:
		if m.IsAdd && m.TableIndex == noTable {
			return &classify.ClassifyAddDelTableReply{NewTableIndex: 7}
		}
		return &classify.ClassifyAddDelTableReply{NewTableIndex: m.TableIndex}
	case *classify.ClassifyTableIds:
		return &classify.ClassifyTableIdsReply{Ids: []uint32{9}}
	case *classify.ClassifyTableInfo:
		return &classify.ClassifyTableInfoReply{TableID: m.TableID, NextTableIndex: 5}
	case *vlib.CliInband:
		if m.Cmd == "show inacl type ip4" {
			return &vlib.CliInbandReply{Reply: " Intfc idx      Classify table\t\tInterface name\n         2                   4\t\tloop0\n"}
		}
		return &vlib.CliInbandReply{Reply: "No output ACL tables configured\n"}
	}
	return nil
}

var classifyCases = []guardCase{
	{"classify-chain", "", attachedShown(made(newTable(noTable))), &classify.ClassifyAddDelTable{TableIndex: 7, DelChain: true}},
	{"classify-in-use", "nothing was shown", []step{made(newTable(noTable))}, dropTable(7)},
	{"classify-in-use", "not all was shown", attachedShown()[:3], dropTable(7)},
	{"", "nothing leads to it", attachedShown(made(newTable(5))), dropTable(7)},
	{"classify-in-use", "another leads to it", attachedShown(made(newTable(5))), dropTable(5)},
	{"", "another led to it", attachedShown(made(newTable(5)), made(lead(7, 6))), dropTable(5)},
	{"classify-in-use", "another was led to it", attachedShown(made(newTable(5)), made(lead(7, 6))), dropTable(6)},
	{"classify-in-use", "leading away was refused", attachedShown(made(newTable(5)), step{lead(7, 6), false}), dropTable(5)},
	{"", "leading there was refused", attachedShown(made(newTable(5)), step{lead(7, 6), false}), dropTable(6)},
	{"", "the other went", attachedShown(made(newTable(5)), made(dropTable(7))), dropTable(5)},
	{"classify-in-use", "the other did not go", attachedShown(made(newTable(5)), step{dropTable(7), false}), dropTable(5)},
	{"", "it is listed no more", attachedShown(made(newTable(5)), listedTables, tableInfo), dropTable(7)},
	{"classify-in-use", "one is not known", attachedShown(listedTables), dropTable(5)},
	{"", "all are known", attachedShown(listedTables, tableInfo), dropTable(6)},
	{"classify-in-use", "one that is shown leads to it", attachedShown(listedTables, tableInfo), dropTable(5)},
	{"classify-in-use", "shown as attached", attachedShown(), dropTable(4)},
	{"classify-in-use", "attached", attachedShown(made(newTable(noTable)), made(inTable(true, 3, noTable, 7))), dropTable(7)},
	{"classify-in-use", "attached to output", attachedShown(made(newTable(noTable)), made(outTable(true, 3, 7))), dropTable(7)},
	{"", "attaching was refused", attachedShown(made(newTable(noTable)), step{outTable(true, 3, 7), false}), dropTable(7)},
	{"", "taken off", attachedShown(made(inTable(false, 2, 4, noTable))), dropTable(4)},
	{"classify-in-use", "taking off was refused", attachedShown(step{inTable(false, 2, 4, noTable), false}), dropTable(4)},
	{"classify-in-use", "shown after it was taken off", attachedShown(append([]step{made(inTable(false, 2, 4, noTable))}, attachedShown()...)...), dropTable(4)},
	{"classify-attached", "nothing was shown", nil, inTable(true, 3, 7, noTable)},
	{"classify-attached", "another is", attachedShown(), inTable(true, 2, 7, noTable)},
	{"classify-attached", "it is already", attachedShown(), inTable(true, 2, 4, noTable)},
	{"", "another family", attachedShown(), inTable(true, 2, noTable, 7)},
	{"", "another direction", attachedShown(), outTable(true, 2, 7)},
	{"", "another interface", attachedShown(), inTable(true, 3, 7, noTable)},
	{"", "the other was taken off", attachedShown(made(inTable(false, 2, 4, noTable))), inTable(true, 2, 7, noTable)},
	{"", "room for two", []step{made(newTable(noTable)), made(newEntry(7, true))}, newEntry(7, true)},
	{"classify-heap", "no room for three", []step{made(newTable(noTable)), made(newEntry(7, true)), made(newEntry(7, true))}, newEntry(7, true)},
	{"", "one was refused", []step{made(newTable(noTable)), made(newEntry(7, true)), {newEntry(7, true), false}}, newEntry(7, true)},
	{"", "one was removed", []step{made(newTable(noTable)), made(newEntry(7, true)), made(newEntry(7, true)), made(newEntry(7, false))}, newEntry(7, true)},
	{"", "of a table that was there", []step{listedTables}, newEntry(9, true)},
}

// TestGuardAfterResetOfClassifier: after a reset the guard knows no tables, since another VPP has other ones.
func TestGuardAfterResetOfClassifier(t *testing.T) {
	g := NewGuard()
	play(t, g, attachedShown(made(newTable(5))), true)
	g.Reset()
	check(t, g, guardCase{rule: "classify-in-use", msg: dropTable(7)})
	play(t, g, attachedShown(), true)
	check(t, g, guardCase{msg: dropTable(5)})
}

func TestAttachedTables(t *testing.T) {
	for text, want := range map[string]map[uint32]uint32{
		"No input ACL tables configured\n": {},
		" Intfc idx      Classify table\t\tInterface name\n         2                   4\t\tloop0\n         7                   0\t\tDELETED (7)\n": {2: 4, 7: 0},
		"":                            {},
		"unknown input `acl'":         nil,
		"Intfc idx\n2 four loop0\n":   nil,
		"Intfc idx\n4294967296 1 x\n": nil, "Intfc idx\n2\n": nil,
	} {
		got, err := AttachedTables(text)
		if text == "" || want == nil {
			if err == nil {
				t.Errorf("%q: %v", text, got)
			}
			continue
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
