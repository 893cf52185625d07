package sim

import (
	"encoding/binary"
	"fmt"
	"strings"

	"go.fd.io/govpp/api"
	classifyapi "go.fd.io/govpp/binapi/classify"

	"github.com/contiv-agent/contiv-agent/sim/classify"
)

const (
	classifyVector = 16
	// Bytes before the arrays of the two requests.
	classifyTableHeader   = 2 + 7*4 + 1 + 2
	classifySessionHeader = 1 + 4*4 + 1 + 4
)

// classifyMessages: classify.api 3.1.0, the messages about tables, sessions, and the input and output nodes of interfaces.
func classifyMessages(t *apiTable) {
	onWrite(t, func(q *call, m *classifyapi.ClassifyAddDelTable) *classifyapi.ClassifyAddDelTableReply {
		return q.classifyTable(m)
	})
	t.handlers[nameCRC(&classifyapi.ClassifyAddDelTable{})].fits = arrayFits(classifyTableHeader, 1)
	onWrite(t, func(q *call, m *classifyapi.ClassifyAddDelSession) *classifyapi.ClassifyAddDelSessionReply {
		rv := q.classify.SetSession(m.TableIndex, classify.Session{
			Hit: uint16(m.HitNextIndex), Opaque: m.OpaqueIndex, Advance: m.Advance, Action: uint8(m.Action), Metadata: m.Metadata, Match: m.Match,
		}, m.IsAdd)
		return &classifyapi.ClassifyAddDelSessionReply{Retval: rv}
	})
	t.handlers[nameCRC(&classifyapi.ClassifyAddDelSession{})].fits = arrayFits(classifySessionHeader, 1)
	onRead(t, func(q *call, _ *classifyapi.ClassifyTableIds) *classifyapi.ClassifyTableIdsReply {
		list := q.classify.Tables()
		return &classifyapi.ClassifyTableIdsReply{Count: uint32(len(list)), Ids: list}
	})
	onRead(t, func(q *call, m *classifyapi.ClassifyTableInfo) *classifyapi.ClassifyTableInfoReply {
		return q.classifyInfo(m.TableID)
	})
	info := t.handlers[nameCRC(&classifyapi.ClassifyTableInfo{})]
	say := info.answer
	info.answer = func(q *call, m api.Message) api.Message {
		if r := say(q, m).(*classifyapi.ClassifyTableInfoReply); r.Retval != 0 {
			return &noTableInfo{r}
		}
		return say(q, m)
	}
	onDump(t, func(q *call, m *classifyapi.ClassifySessionDump, send func(*classifyapi.ClassifySessionDetails)) {
		for _, s := range q.classify.Sessions(m.TableID) {
			send(&classifyapi.ClassifySessionDetails{
				TableID: m.TableID, HitNextIndex: uint32(s.Hit), Advance: s.Advance, OpaqueIndex: s.Opaque, MatchLength: uint32(len(s.Match)), Match: s.Match,
			})
		}
	})
	classifyInterfaceMessages(t)
}

// noTableInfo is the answer for a missing table. Except for the retval, VPP sends the earlier content of its memory. So the length
// of the mask is arbitrary, and no client can decode it (vl_api_classify_table_info_t_handler; found on 24.06 and 25.10).
type noTableInfo struct {
	*classifyapi.ClassifyTableInfoReply
}

// Marshal is the generated method, with the length overwritten.
func (m noTableInfo) Marshal(b []byte) ([]byte, error) {
	b, err := m.ClassifyTableInfoReply.Marshal(b)
	if err == nil {
		binary.BigEndian.PutUint32(b[len(b)-4:], 0x69676e69)
	}
	return b, err
}

func classifyInterfaceMessages(t *apiTable) {
	onWrite(t, func(q *call, m *classifyapi.InputACLSetInterface) *classifyapi.InputACLSetInterfaceReply {
		tables := [classify.Kinds]uint32{m.IP4TableIndex, m.IP6TableIndex, m.L2TableIndex}
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { return q.classify.Set(classify.Input, f.index, tables, m.IsAdd) })
		return &classifyapi.InputACLSetInterfaceReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *classifyapi.OutputACLSetInterface) *classifyapi.OutputACLSetInterfaceReply {
		tables := [classify.Kinds]uint32{m.IP4TableIndex, m.IP6TableIndex, m.L2TableIndex}
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { return q.classify.Set(classify.Output, f.index, tables, m.IsAdd) })
		return &classifyapi.OutputACLSetInterfaceReply{Retval: rv}
	})
	onRead(t, func(q *call, m *classifyapi.ClassifyTableByInterface) *classifyapi.ClassifyTableByInterfaceReply {
		r := &classifyapi.ClassifyTableByInterfaceReply{SwIfIndex: m.SwIfIndex, L2TableID: noIndex, IP4TableID: noIndex, IP6TableID: noIndex}
		r.Retval = q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			at := func(k classify.Kind) uint32 { return q.classify.Attached(classify.Input, k, f.index) }
			r.IP4TableID, r.IP6TableID, r.L2TableID = at(classify.IP4), at(classify.IP6), at(classify.L2)
			return 0
		})
		return r
	})
}

// classifyTable adds, changes or deletes a table. A change of a missing table adds it.
func (v *VPP) classifyTable(m *classifyapi.ClassifyAddDelTable) *classifyapi.ClassifyAddDelTableReply {
	r := &classifyapi.ClassifyAddDelTableReply{NewTableIndex: noIndex, SkipNVectors: noIndex, MatchNVectors: noIndex}
	switch {
	case uint64(len(m.Mask)) != uint64(m.MatchNVectors)*classifyVector:
		r.Retval = rvInvalidValue
		return r
	case !m.IsAdd:
		r.Retval = v.classify.Del(m.TableIndex, m.DelChain)
		return r
	case v.classify.Has(m.TableIndex):
		v.classify.SetNext(m.TableIndex, m.NextTableIndex)
		r.NewTableIndex = m.TableIndex
	default:
		r.NewTableIndex, r.Retval = v.classify.Add(classify.Table{
			Buckets: m.Nbuckets, Memory: m.MemorySize, Skip: m.SkipNVectors, Match: m.MatchNVectors, Next: m.NextTableIndex, Miss: m.MissNextIndex,
			CurrentData: m.CurrentDataFlag == 1, Offset: m.CurrentDataOffset, Mask: m.Mask,
		})
	}
	if r.Retval == 0 {
		t, _ := v.classify.Table(r.NewTableIndex)
		r.SkipNVectors, r.MatchNVectors = t.Skip, t.Match
	}
	return r
}

func (v *VPP) classifyInfo(i uint32) *classifyapi.ClassifyTableInfoReply {
	if !v.classify.Has(i) {
		return &classifyapi.ClassifyTableInfoReply{Retval: rvClassifyTableNotFound}
	}
	t, n := v.classify.Table(i)
	return &classifyapi.ClassifyTableInfoReply{
		TableID: i, Nbuckets: t.Buckets, MatchNVectors: t.Match, SkipNVectors: t.Skip, ActiveSessions: uint32(n), NextTableIndex: t.Next,
		MissNextIndex: t.Miss, MaskLength: uint32(len(t.Mask)), Mask: t.Mask,
	}
}

// showInOutACL returns `show inacl type ip4` and similar commands; false: not understood.
func (v *VPP) showInOutACL(words string) (string, bool) {
	for d, show := range []string{"show inacl type ", "show outacl type "} {
		name, ok := strings.CutPrefix(words, show)
		if !ok {
			continue
		}
		for k := range classify.Kinds {
			if classifyKind(k) == name {
				return v.noted(classify.Direction(d), k), true
			}
		}
	}
	return "", false
}

func (v *VPP) noted(d classify.Direction, k classify.Kind) string {
	list := v.classify.Noted(d, k)
	if !v.classify.Ever(d, k) {
		return fmt.Sprintf("No %s ACL tables configured\n", []string{"input", "output"}[d])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%10s%20s\t\t%s\n", "Intfc idx", "Classify table", "Interface name")
	for _, swIf := range list {
		name := fmt.Sprintf("DELETED (%d)", swIf)
		if f := v.ifs.get(swIf); f != nil {
			name = f.name
		}
		fmt.Fprintf(&b, "%10d%20d\t\t%s\n", swIf, v.classify.Attached(d, k, swIf), name)
	}
	return b.String()
}
