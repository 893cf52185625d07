package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	classifyapi "go.fd.io/govpp/binapi/classify"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/sim/classify"
)

// classify returns a request about tables, sessions and attachments, some of them invalid.
func (g *generator) classify(v *VPP) api.Message {
	table := func() uint32 { return pick[uint32](g, 0, 1, 2, 3, 4, 5, 6, 7, noIndex) }
	switch g.r.IntN(10) {
	case 0, 1:
		m := &classifyapi.ClassifyAddDelTable{
			IsAdd: true, TableIndex: pick(g, noIndex, noIndex, noIndex, table()), Nbuckets: pick[uint32](g, 0, 1, 2, 3, 16, 1000), MemorySize: pick[uint32](g, 0, 1<<20, 1<<20, 1<<20, 1<<20),
			SkipNVectors: uint32(g.r.IntN(3)), MatchNVectors: uint32(g.r.IntN(4)), NextTableIndex: pick(g, noIndex, noIndex, table()), MissNextIndex: pick[uint32](g, 0, noIndex, 70000),
			CurrentDataFlag: uint8(g.r.IntN(3)), CurrentDataOffset: pick[int16](g, 0, -14, 20),
		}
		m.Mask = g.bytes(int(m.MatchNVectors)*16+pick(g, 0, 0, 0, 0, 0, 0, 1, -1), 0xff, 0xf0)
		return m
	case 2:
		m := &classifyapi.ClassifyAddDelTable{TableIndex: table(), MatchNVectors: uint32(g.r.IntN(2)), DelChain: g.r.IntN(4) == 0}
		if m.DelChain && goesRound(v, m.TableIndex) {
			m.DelChain = false
		}
		m.Mask = g.bytes(int(m.MatchNVectors)*16+pick(g, 0, 0, 0, 0, 0, 1), 0)
		return m
	case 3, 4, 5:
		m := &classifyapi.ClassifyAddDelSession{
			IsAdd: g.yes(), TableIndex: table(), HitNextIndex: pick[uint32](g, 0, noIndex, 65535, 65536, 70000), OpaqueIndex: g.r.Uint32(), Advance: pick[int32](g, 0, -14),
		}
		if v.classify.Has(m.TableIndex) {
			t, _ := v.classify.Table(m.TableIndex)
			m.Match = g.bytes(16*int(t.Skip+t.Match)+pick(g, 0, 0, 0, 0, 0, 0, 0, 16), 1, 2, 16, 0)
			// A free entry is all ones in VPP, so VPP can delete many entries that do not exist.
			m.Match[len(m.Match)-1] &= 0x0f
		}
		return m
	case 6, 7:
		return &classifyapi.InputACLSetInterface{SwIfIndex: g.index(), IP4TableIndex: pick(g, noIndex, table()), IP6TableIndex: pick(g, noIndex, table()), L2TableIndex: noIndex, IsAdd: g.yes()}
	case 8:
		return &classifyapi.OutputACLSetInterface{SwIfIndex: g.index(), IP4TableIndex: pick(g, noIndex, table()), IP6TableIndex: pick(g, noIndex, table()), L2TableIndex: noIndex, IsAdd: g.yes()}
	}
	if g.yes() { // no classify_table_info: see noTableInfo
		return &interfaces_.CreateLoopbackInstance{IsSpecified: true, UserInstance: uint32(g.r.IntN(4))}
	}
	return &interfaces_.DeleteLoopback{SwIfIndex: g.index()}
}

func (g *generator) bytes(n int, of ...byte) []byte {
	out := make([]byte, max(n, 0))
	for i := range out {
		if g.r.IntN(8) == 0 {
			out[i] = pick(g, of...)
		}
	}
	return out
}

func goesRound(v *VPP, i uint32) bool {
	seen := map[uint32]bool{}
	for ; v.classify.Has(i); i, _ = v.nextTable(i) {
		if seen[i] {
			return true
		}
		seen[i] = true
	}
	return false
}

// TestAgainstRealVPPClassify: random tables, sessions and attachments, to interfaces that are added and removed, get the same
// replies and dumps.
func TestAgainstRealVPPClassify(t *testing.T) {
	real, v := realVPP(t), New(Config{})
	fake := dial(t, v)
	seed, steps := envInt(t, "CONTIV_VPP_SEED", 1), envInt(t, "CONTIV_VPP_STEPS", 3000)
	g := &generator{r: rand.New(rand.NewPCG(uint64(seed), 1))}
	for i := range steps {
		m := g.classify(v)
		got, want := answerText(fake, m), answerText(real, m)
		if want != got {
			t.Fatalf("seed %d step %d, %s\nvpp: %s\nsim: %s", seed, i, v.Log()[i].Text, want, got)
		}
		if i%20 == 19 {
			if want, got := classifyDumps(real), classifyDumps(fake); want != got {
				t.Fatalf("seed %d, after step %d:\nvpp: %s\nsim: %s", seed, i, want, got)
			}
		}
	}
	if seed == 1 && len(v.classify.Tables()) == 0 {
		t.Error("no table in the end: the steps test nothing")
	}
}

func classifyDumps(c *client) string {
	var b strings.Builder
	ids := call1[*classifyapi.ClassifyTableIdsReply](c, &classifyapi.ClassifyTableIds{}).Ids
	for _, id := range ids {
		fmt.Fprintf(&b, "%s\n", answerText(c, &classifyapi.ClassifyTableInfo{TableID: id}))
		lines := texts(dump[*classifyapi.ClassifySessionDetails](c, &classifyapi.ClassifySessionDump{TableID: id}), func(d *classifyapi.ClassifySessionDetails) string { return plain(*d) })
		slices.Sort(lines)
		fmt.Fprintf(&b, "%s\n", strings.Join(lines, "\n"))
	}
	for i := range interface_types.InterfaceIndex(10) {
		fmt.Fprintf(&b, "%s\n", answerText(c, &classifyapi.ClassifyTableByInterface{SwIfIndex: i}))
	}
	for _, way := range []string{"inacl", "outacl"} {
		for k := range classify.Kinds {
			fmt.Fprintf(&b, "%s\n", call1[*vlib.CliInbandReply](c, &vlib.CliInband{Cmd: "show " + way + " type " + classifyKind(k)}).Reply)
		}
	}
	return b.String()
}
