package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	classifyapi "go.fd.io/govpp/binapi/classify"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// classifyTable returns a request for a table whose mask has single bytes of packets.
func classifyTable(vectors int, next, miss uint32, at ...int) *classifyapi.ClassifyAddDelTable {
	m := &classifyapi.ClassifyAddDelTable{
		IsAdd: true, TableIndex: noIndex, Nbuckets: 2, MemorySize: 1 << 20, MatchNVectors: uint32(vectors), NextTableIndex: next, MissNextIndex: miss,
		CurrentDataFlag: 1, Mask: make([]byte, 16*vectors),
	}
	for _, i := range at {
		m.Mask[i] = 0xff
	}
	return m
}

// classifySession matches the given bytes by offset.
func classifySession(table uint32, vectors int, hit uint32, at map[int]byte) *classifyapi.ClassifyAddDelSession {
	m := &classifyapi.ClassifyAddDelSession{IsAdd: true, TableIndex: table, HitNextIndex: hit, OpaqueIndex: 0xca1, Match: make([]byte, 16*vectors)}
	for i, b := range at {
		m.Match[i] = b
	}
	return m
}

func (c *client) newTable(m *classifyapi.ClassifyAddDelTable) uint32 {
	c.t.Helper()
	r := call1[*classifyapi.ClassifyAddDelTableReply](c, m)
	if r.Retval != 0 {
		c.t.Fatalf("%+v: %d", m, r.Retval)
	}
	return r.NewTableIndex
}

// INITs of SCTP to port 5000 pass, others are dropped; everything else passes, in both directions.
func TestClassifySCTP(t *testing.T) {
	v := node(t, Config{})
	c := dial(t, v)
	pod, uplink := interface_types.InterfaceIndex(index(v, "pod-a")), interface_types.InterfaceIndex(index(v, "uplink"))
	deny := c.newTable(classifyTable(3, noIndex, noIndex, 9, 32))
	c.must(classifySession(deny, 3, 0, map[int]byte{9: 132, 32: packet.Init}))
	allow := c.newTable(classifyTable(3, deny, noIndex, 9, 22, 23, 32))
	c.must(classifySession(allow, 3, noIndex, map[int]byte{9: 132, 22: 5000 >> 8, 23: 5000 & 0xff, 32: packet.Init}))
	ask := func(want string, p ...string) {
		t.Helper()
		for _, line := range p {
			first, _ := packet.Parse(line)
			fate := v.Send("pod-a", first)
			got := "pass"
			if len(fate.Out) == 0 {
				last := fate.Hops[len(fate.Hops)-1]
				if got = last.Node; last.Classify == nil || last.Classify.Permit {
					t.Errorf("%s: the last hop has no verdict: %+v", line, last)
				}
			}
			if got != want {
				t.Errorf("%s: %s, want %s\n%v", line, got, want, fate.Hops)
			}
		}
	}
	const to = "sctp 10.1.1.2:7 -> 8.8.8.8:"
	others := []string{to + "5000 [INIT]", to + "5001", to + "5001 [INIT-ACK]", to + "5001 [COOKIE-ECHO]", "udp 10.1.1.2:7 -> 8.8.8.8:5001", "tcp 10.1.1.2:7 -> 8.8.8.8:5001 [S]"}
	ask("pass", append(others, to+"5001 [INIT]")...)
	c.must(&classifyapi.InputACLSetInterface{SwIfIndex: pod, IP4TableIndex: allow, IP6TableIndex: noIndex, L2TableIndex: noIndex, IsAdd: true})
	ask("pass", others...)
	ask("ip4-inacl", to+"5001 [INIT]", to+"0 [INIT]")
	c.must(&classifyapi.OutputACLSetInterface{SwIfIndex: uplink, IP4TableIndex: allow, IP6TableIndex: noIndex, L2TableIndex: noIndex, IsAdd: true},
		&classifyapi.InputACLSetInterface{SwIfIndex: pod, IP4TableIndex: allow, IP6TableIndex: noIndex, L2TableIndex: noIndex})
	ask("pass", others...)
	ask("ip4-outacl", to+"5001 [INIT]")
	dump := v.Dump()
	if want := "classify uplink output ip4\n  table buckets 2 packet+0 skip 0 mask "; !strings.Contains(dump, want) || strings.Contains(dump, "classify pod-a") || strings.Contains(dump, "classify-table") {
		t.Errorf("dump:\n%s", dump)
	}
	if want := "hit next opaque 0xca1\n  table "; !strings.Contains(dump, want) || !strings.Contains(dump, "hit 0 opaque 0xca1\n") {
		t.Errorf("dump:\n%s", dump)
	}
}

// After the deletion of a table that packets meet, the next packet crashes VPP.
func TestClassifyTableGone(t *testing.T) {
	v := node(t, Config{})
	c := dial(t, v)
	i := c.newTable(classifyTable(1, noIndex, noIndex, 9))
	c.must(&classifyapi.InputACLSetInterface{SwIfIndex: interface_types.InterfaceIndex(index(v, "pod-a")), IP4TableIndex: i, IP6TableIndex: noIndex, L2TableIndex: noIndex, IsAdd: true},
		&classifyapi.ClassifyAddDelTable{TableIndex: i})
	if v.Crashed() != nil {
		t.Fatal(v.Crashed())
	}
	p, _ := packet.Parse("udp 10.1.1.2:7 -> 8.8.8.8:5001")
	if v.Send("pod-a", p); v.Crashed() == nil || !strings.Contains(v.Crashed().Error(), "deleted") {
		t.Error(v.Crashed())
	}
}

// The table of a deleted interface is still shown, and "add" for the next interface of that index is a success that does nothing.
func TestClassifyStale(t *testing.T) {
	v := New(Config{})
	c := dial(t, v)
	loop := call1[*interfaces_.CreateLoopbackReply](c, &interfaces_.CreateLoopback{}).SwIfIndex
	i := c.newTable(classifyTable(3, noIndex, 0, 9))
	attach := &classifyapi.OutputACLSetInterface{SwIfIndex: loop, IP4TableIndex: noIndex, IP6TableIndex: i, L2TableIndex: noIndex, IsAdd: true}
	show := func() string {
		return call1[*vlib.CliInbandReply](c, &vlib.CliInband{Cmd: "show outacl type ip6"}).Reply
	}
	if got := show(); got != "No output ACL tables configured\n" {
		t.Errorf("%q", got)
	}
	c.must(attach)
	row := func(name string) string { return fmt.Sprintf("%10d%20d\t\t%s\n", loop, i, name) }
	if got := show(); !strings.HasSuffix(got, row("loop0")) || strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
	c.must(&interfaces_.DeleteLoopback{SwIfIndex: loop})
	if got := show(); !strings.HasSuffix(got, row(fmt.Sprintf("DELETED (%d)", loop))) {
		t.Errorf("%q", got)
	}
	if rv := c.retval(attach); rv != rvInvalidSwIfIndex {
		t.Errorf("of no interface: %d", rv)
	}
	if again := call1[*interfaces_.CreateLoopbackReply](c, &interfaces_.CreateLoopback{}).SwIfIndex; again != loop {
		t.Fatalf("interface %d", again)
	}
	features := func() string {
		return call1[*vlib.CliInbandReply](c, &vlib.CliInband{Cmd: "show interface features loop0"}).Reply
	}
	c.must(attach)
	if strings.Contains(features(), "ip6-outacl") || !strings.Contains(v.Dump(), "classify loop0 output ip6 (noted, but off)\n") {
		t.Errorf("%s%s", features(), v.Dump())
	}
	off := *attach
	off.IsAdd = false
	c.must(&off, attach)
	if !strings.Contains(features(), "ip6-outacl") {
		t.Error(features())
	}
}

// VPP answers classify_table_info of a missing table, but no client can decode the answer.
func TestClassifyInfo(t *testing.T) {
	c := dial(t, New(Config{}))
	i := c.newTable(classifyTable(1, 7, 70000, 9))
	c.must(classifySession(i, 1, 65536, map[int]byte{9: 132, 8: 1}))
	r := call1[*classifyapi.ClassifyTableInfoReply](c, &classifyapi.ClassifyTableInfo{TableID: i})
	if r.ActiveSessions != 1 || r.NextTableIndex != 7 || r.MissNextIndex != 70000 || r.Mask[9] != 0xff || len(r.Mask) != 16 {
		t.Errorf("%+v", r)
	}
	list := dump[*classifyapi.ClassifySessionDetails](c, &classifyapi.ClassifySessionDump{TableID: i})
	if len(list) != 1 || list[0].HitNextIndex != 0 || list[0].Match[9] != 132 || list[0].Match[8] != 0 {
		t.Errorf("%+v", list)
	}
	if ids := call1[*classifyapi.ClassifyTableIdsReply](c, &classifyapi.ClassifyTableIds{}).Ids; !slices.Equal(ids, []uint32{i}) {
		t.Errorf("%v", ids)
	}
	c.ask(&classifyapi.ClassifyTableInfo{TableID: i + 1})
	if _, _, err := c.next(); err == nil {
		t.Error("the answer about no table can be read")
	}
}
