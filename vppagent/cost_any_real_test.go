package vppagent_test

import (
	"testing"
	"time"

	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// TestVPPCostAtAnyPort compares package cost with a real VPP for arrangements of a set at any port (ADR 20): the four rules of ADR 12 for each
// member, or fewer.
func TestVPPCostAtAnyPort(t *testing.T) {
	conn := realVPP(t, costPods, "")
	c := &costs{t: t, conn: conn, model: cost.For(conn.State().Version)}
	const syn, tcp, udp, rest = 0, 1, 2, 3
	answers := func(which ...int) []acl_types.ACLRule {
		list := ofFour(0, 1, which...)
		for i := range list {
			list[i].SrcPrefix.Len = 0
			list[i].SrcPrefix.Address.Un.SetIP4([4]byte{})
		}
		return list
	}
	c.switches("four rules", nil, syn, tcp, udp, rest)
	c.switches("three rules: no SYN to high ports", nil, tcp, udp, rest)
	c.switches("answers by TCP once, for all; two rules", answers(tcp), udp, rest)
	c.switches("answers by TCP and UDP once, for all; one rule", answers(tcp, udp), rest)
}

// ofFour are some of the four rules of each member.
func ofFour(first, members int, which ...int) (out []acl_types.ACLRule) {
	all := costRules(first, members, true, 0)
	for ; len(all) > 0; all = all[4:] {
		for _, i := range which {
			out = append(out, all[i])
		}
	}
	return out
}

// switches compares the switch of an interface that has a set of 10,000 members in 8 lists behind a first list.
func (c *costs) switches(name string, first []acl_types.ACLRule, which ...int) {
	const members, tables = 10_000, 8
	var index []uint32
	var sizes cost.Context
	add := func(rules []acl_types.ACLRule) {
		n, _ := c.write(^uint32(0), rules)
		index, sizes = append(index, n), append(sizes, len(rules))
	}
	if first != nil {
		add(first)
	}
	for i := range tables {
		add(ofFour(i*members/tables, members/tables, which...))
	}
	var took []time.Duration
	for turn := range 2 {
		for i := range costPods {
			_, d := c.do(&vppacl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(1 + i), Count: uint8(len(index)), Acls: index})
			if turn > 0 {
				took = append(took, d)
			}
		}
	}
	c.check(name, c.model.Switch([2]cost.Context{nil, sizes}, [2]cost.Context{nil, sizes}), took)
	for i := range costPods {
		c.do(&vppacl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(1 + i)})
	}
	for _, n := range index {
		c.do(&vppacl.ACLDel{ACLIndex: n})
	}
}
