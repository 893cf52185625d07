package vppagent_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// costRatio bounds the ratio of the measured and the estimated time. Caches and neighbours make a factor of two.
const costRatio = 4

const costPods = 10

// costs compares a real VPP with its model.
type costs struct {
	t     *testing.T
	conn  *vpp.Conn
	model cost.Model
}

// busy is the CPU time of VPP's main thread.
func (c *costs) busy() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/schedstat", c.conn.State().PID))
	if err != nil {
		c.t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return time.Duration(ns)
}

func (c *costs) do(m api.Message) (api.Message, time.Duration) {
	c.t.Helper()
	before := c.busy()
	r := c.conn.Do(context.Background(), vpp.Call{Msg: m})[0]
	if r.Err != nil {
		c.t.Fatal(r.Err)
	}
	return r.Msg, c.busy() - before
}

// check compares the median of several measurements with an estimate.
func (c *costs) check(name string, estimate time.Duration, took []time.Duration) {
	slices.Sort(took)
	median := took[len(took)/2]
	c.t.Logf("%-40s estimated %8s, took %8s (%s to %s)", name, estimate.Round(time.Microsecond), median.Round(time.Microsecond), took[0].Round(time.Microsecond), took[len(took)-1].Round(time.Microsecond))
	if estimate > costRatio*median || median > costRatio*estimate {
		c.t.Errorf("%s: estimated %s, took %s", name, estimate, median)
	}
}

// costRules are rules for members that are pods of nodes: each for one port, or at any port as ADR 12 has it.
func costRules(first, members int, anyPort bool, port uint16) (out []acl_types.ACLRule) {
	for i := first; i < first+members; i++ {
		addr := uint32(10<<24 + i/55<<8 + 2 + i%55*2)
		r := acl_types.ACLRule{
			IsPermit: acl_types.ACL_ACTION_API_PERMIT_REFLECT, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535,
			SrcPrefix: ip_types.Prefix{Address: ip_types.NewAddress(binary.BigEndian.AppendUint32(nil, addr)), Len: 32},
		}
		if !anyPort {
			r.Proto, r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast = ip_types.IP_API_PROTO_TCP, port, port
			out = append(out, r)
			continue
		}
		syn := r
		syn.Proto, syn.DstportOrIcmpcodeFirst, syn.TCPFlagsMask, syn.TCPFlagsValue = ip_types.IP_API_PROTO_TCP, 32768, 0x12, 0x02
		tcp := syn
		tcp.TCPFlagsMask, tcp.TCPFlagsValue, tcp.IsPermit = 0, 0, acl_types.ACL_ACTION_API_PERMIT
		udp := tcp
		udp.Proto = ip_types.IP_API_PROTO_UDP
		out = append(out, syn, tcp, udp, r)
	}
	return out
}

// TestVPPCost compares package cost with a real VPP: the main thread takes the estimated time, within costRatio.
func TestVPPCost(t *testing.T) {
	conn := realVPP(t, costPods, "")
	c := &costs{t: t, conn: conn, model: cost.For(conn.State().Version)}
	for _, anyPort := range []bool{false, true} {
		for _, tables := range []int{1, 8, 32} {
			c.set(fmt.Sprintf("any port %t, %d lists: ", anyPort, tables), tables, anyPort)
		}
	}
}

func (c *costs) write(index uint32, rules []acl_types.ACLRule) (uint32, time.Duration) {
	m, took := c.do(&vppacl.ACLAddReplace{ACLIndex: index, Tag: "cost", Count: uint32(len(rules)), R: rules})
	return m.(*vppacl.ACLAddReplaceReply).ACLIndex, took
}

// set is 5,000 members that each interface has in so many lists.
func (c *costs) set(name string, tables int, anyPort bool) {
	const members = 5000
	each := members / tables
	var index []uint32
	var sizes cost.Context
	var writes []time.Duration
	for i := range tables {
		rules := costRules(i*each, each, anyPort, 80)
		n, took := c.write(^uint32(0), rules)
		index, sizes, writes = append(index, n), append(sizes, len(rules)), append(writes, took)
	}
	if tables <= 8 { // the connection dominates the shortest
		for len(writes) < 3 { // the first one also takes pages that VPP's heap has never touched
			n, took := c.write(^uint32(0), costRules(0, each, anyPort, 80))
			c.do(&vppacl.ACLDel{ACLIndex: n})
			writes = append(writes, took)
		}
		c.check(name+"write", c.model.Write(sizes[0]), writes)
	}
	attach := func() (took []time.Duration) {
		for i := range costPods {
			_, d := c.do(&vppacl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(1 + i), Count: uint8(tables), Acls: index})
			took = append(took, d)
		}
		return took
	}
	c.check(name+"attach", c.model.Switch([2]cost.Context{}, [2]cost.Context{nil, sizes}), attach())
	c.check(name+"switch", c.model.Switch([2]cost.Context{nil, sizes}, [2]cost.Context{nil, sizes}), attach())
	all := make([]cost.Context, costPods)
	for i := range all {
		all[i] = sizes
	}
	for _, at := range slices.Compact([]int{0, tables / 2, tables - 1}) {
		places := make([]int, costPods)
		var took []time.Duration
		for i := range places {
			places[i] = at
		}
		for turn := range uint16(3) {
			_, d := c.write(index[at], costRules(at*each, each, anyPort, 81+turn%2))
			took = append(took, d)
		}
		c.check(fmt.Sprintf("%sreplace list %d", name, at), c.model.Replace(sizes[at], all, places), took)
	}
	for i := range costPods {
		c.do(&vppacl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(1 + i)})
	}
	for _, n := range index {
		c.do(&vppacl.ACLDel{ACLIndex: n})
	}
}
