package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// A set of addresses that local pods allow, as one access list or as several, in the output lists of all of them.
const (
	setSize    = 10_000
	setPods    = 100
	setChanges = 5 // per figure; the benchmark reports the median
)

// BenchmarkACLSet changes one address of a set of 10,000 that 100 pods allow: what VPP takes to apply it (its workers stand
// still meanwhile), by the size of the access lists the set is split into, by where in the list the changed one is, and by how
// it is changed: in place, or by a second ACL all pods are switched to. bytes is what is sent, ratio the time compared with
// that of rewriting the set as one.
func BenchmarkACLSet(b *testing.B) {
	if realVPP() == "" {
		b.Skip("CONTIV_VPP is not set: the cost is VPP's own")
	}
	var whole float64
	for _, size := range []int{setSize, 1000, 250, 50} {
		b.Run(fmt.Sprintf("rules=%d", size), func(b *testing.B) {
			s := newACLSet(b, size)
			for _, p := range s.places() {
				for _, way := range []aclWay{{"in-place", s.change}, {"beside", s.beside}} {
					b.Run("place="+p.name+"/how="+way.name, func(b *testing.B) {
						ms, bytes := median(b, func() (time.Duration, int) { return way.change(b, p.chunk) })
						if size == setSize && way.name == "in-place" {
							whole = ms
						}
						b.ReportMetric(ms, "ms")
						b.ReportMetric(float64(bytes), "bytes")
						if whole > 0 {
							b.ReportMetric(ms/whole, "ratio")
						}
						b.ReportMetric(0, "ns/op")
					})
				}
			}
		})
	}
}

func median(b *testing.B, change func() (time.Duration, int)) (ms float64, bytes int) {
	var took []time.Duration
	for b.Loop() {
		for range setChanges {
			d, n := change()
			took, bytes = append(took, d), n
		}
	}
	return percentile(took, 50).Seconds() * 1e3, bytes
}

type aclWay struct {
	name   string
	change func(b *testing.B, chunk int) (time.Duration, int)
}

type aclPlace struct {
	name  string
	chunk int
}

func (s *aclSet) places() []aclPlace {
	n := len(s.index)
	if n == 1 {
		return []aclPlace{{"only", 0}}
	}
	return []aclPlace{{"first", 0}, {"middle", n / 2}, {"last", n - 1}}
}

// aclSet is the set in a separate VPP.
type aclSet struct {
	conn  *bare
	size  int
	total int                 // members
	rules []acl_types.ACLRule // of each member; nil: one for a port of TCP
	index []uint32            // of the ACLs
	pods  []interface_types.InterfaceIndex
	turn  uint32
}

func newACLSet(b *testing.B, size int) *aclSet {
	dial, stop := startVPP(b)
	b.Cleanup(stop)
	s := &aclSet{conn: dialBare(b, dial), size: size, total: setSize}
	s.make(b, setPods)
	return s
}

// make makes the ACLs, and pods that have them.
func (s *aclSet) make(b *testing.B, pods uint32) {
	for first := 0; first < s.total; first += s.size {
		m := s.chunk(first, 0)
		m.ACLIndex = ^uint32(0)
		r := s.conn.Do(context.Background(), vpp.Call{Msg: m})[0]
		if r.Err != nil {
			b.Fatal(r.Err)
		}
		s.index = append(s.index, r.Msg.(*acl.ACLAddReplaceReply).ACLIndex)
	}
	for i := range pods {
		r := s.conn.Do(context.Background(), vpp.Call{Msg: &interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: 1000 + i}})[0]
		if r.Err != nil {
			b.Fatal(r.Err)
		}
		idx := r.Msg.(*interfaces.CreateLoopbackInstanceReply).SwIfIndex
		s.pods = append(s.pods, idx)
		s.conn.do(b, []vpp.Call{
			{Msg: &interfaces.SwInterfaceSetFlags{SwIfIndex: idx, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}},
			{Msg: s.attach(idx)},
		})
	}
}

// chunk is the ACL for the members from first on; the last one is another address each turn.
func (s *aclSet) chunk(first int, turn uint32) *acl.ACLAddReplace {
	if s.rules != nil {
		return s.chunkOf(first, turn)
	}
	n := min(s.size, s.total-first)
	m := &acl.ACLAddReplace{Tag: fmt.Sprintf("set %d", first), Count: uint32(n), R: make([]acl_types.ACLRule, n)}
	for i := range m.R {
		addr := uint32(10<<24 + first + i)
		if i == n-1 {
			addr += turn << 16
		}
		m.R[i] = acl_types.ACLRule{
			IsPermit: acl_types.ACL_ACTION_API_PERMIT_REFLECT, Proto: ip_types.IP_API_PROTO_TCP, SrcportOrIcmptypeLast: 65535,
			SrcPrefix:              ip_types.Prefix{Address: ip_types.NewAddress(binary.BigEndian.AppendUint32(nil, addr)), Len: 32},
			DstportOrIcmpcodeFirst: 80, DstportOrIcmpcodeLast: 80,
		}
	}
	return m
}

// change replaces one member of a chunk.
func (s *aclSet) change(b *testing.B, chunk int) (took time.Duration, bytes int) {
	s.turn = s.turn%100 + 1
	m := s.chunk(chunk*s.size, s.turn)
	m.ACLIndex = s.index[chunk]
	began := time.Now()
	s.conn.do(b, []vpp.Call{{Msg: m}})
	return time.Since(began), m.Size()
}

// beside makes a second ACL, switches all pods to it, and removes the first.
func (s *aclSet) beside(b *testing.B, chunk int) (took time.Duration, bytes int) {
	s.turn = s.turn%100 + 1
	m := s.chunk(chunk*s.size, s.turn)
	m.ACLIndex = ^uint32(0)
	began := time.Now()
	r := s.conn.Do(context.Background(), vpp.Call{Msg: m})[0]
	if r.Err != nil {
		b.Fatal(r.Err)
	}
	old := s.index[chunk]
	s.index = slices.Clone(s.index)
	s.index[chunk] = r.Msg.(*acl.ACLAddReplaceReply).ACLIndex
	var calls []vpp.Call
	for _, idx := range s.pods {
		list := s.attach(idx)
		calls = append(calls, vpp.Call{Msg: list})
		bytes += list.Size()
	}
	s.conn.do(b, append(calls, vpp.Call{Msg: &acl.ACLDel{ACLIndex: old}}))
	return time.Since(began), bytes + m.Size()
}

func (s *aclSet) attach(pod interface_types.InterfaceIndex) *acl.ACLInterfaceSetACLList {
	return &acl.ACLInterfaceSetACLList{SwIfIndex: pod, Count: uint8(len(s.index)), Acls: s.index}
}
