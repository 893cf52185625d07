package vppagent_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	vppacl "go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// granter is a VPP that accepts every request and does nothing: a benchmark on it measures the agent alone.
type granter struct{ index uint32 }

func (g *granter) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	out := make([]vpp.Reply, len(calls))
	for i, c := range calls {
		switch c.Msg.(type) {
		case *vppacl.ACLAddReplace:
			g.index++
			out[i].Msg = &vppacl.ACLAddReplaceReply{ACLIndex: g.index}
		case *interfaces.SwInterfaceDump:
			for n := range uint32(200) {
				out[i].Details = append(out[i].Details, &interfaces.SwInterfaceDetails{
					SwIfIndex: interface_types.InterfaceIndex(n), InterfaceName: fmt.Sprintf("tap%d", n),
				})
			}
		}
	}
	return out
}

// BenchmarkACLChange changes one rule of one access list: that of one pod of 110, with 300 peers; or one of 40 that 100 pods
// share, a set of 10,000 addresses.
func BenchmarkACLChange(b *testing.B) {
	for _, tc := range []struct {
		name                              string
		pods, lists, rules, share, writes int
	}{{"110 pods × 300 peers", 110, 110, 300, 1, 1}, {"set of 40 × 250 for 100 pods", 100, 40, 250, 40, 102}} {
		b.Run(tc.name, func(b *testing.B) {
			list := func(n, turn int) *acl.ACL {
				m := accessList(fmt.Sprintf("list-%d", n))
				for i := range tc.rules {
					m.Rules = append(m.Rules, rule(acl.ACL_Rule_REFLECT, "tcp", fmt.Sprintf("10.%d.%d.%d/32", 1+i/256, i%256, turn), "", 80))
				}
				return m
			}
			v := kv.Values{}
			for n := range tc.lists {
				v.Put(list(n, 0))
			}
			for pod := range tc.pods {
				var names []string
				for i := range tc.share {
					names = append(names, fmt.Sprintf("list-%d", (pod*tc.share+i)%tc.lists))
				}
				v.Put(lists(fmt.Sprintf("tap%d", 1+pod), nil, names))
			}
			a := vppagent.New(vppagent.Config{Caller: &granter{}})
			if c := a.Commit(context.Background(), &event.Txn{Resync: event.Full, Values: v}); c.Err != nil || c.Add < tc.pods+tc.lists {
				b.Fatalf("%+v", c)
			}
			var next [2]map[string]proto.Message
			for i := range next {
				m := list(7, i+1)
				next[i] = map[string]proto.Message{kv.Key(m): m}
			}
			b.ReportAllocs()
			for turn := 0; b.Loop(); turn = 1 - turn {
				if c := a.Commit(context.Background(), &event.Txn{Values: next[turn]}); c.Writes != tc.writes {
					b.Fatalf("%+v", c)
				}
			}
		})
	}
}

// BenchmarkACLsBeside changes 40 access lists that 100 pods share, all in different ways: 40 new ones, 100 switches, 40 old ones
// removed.
func BenchmarkACLsBeside(b *testing.B) {
	const pods, count, rules = 100, 40, 250
	var next [2]kv.Values
	var all []string
	for turn := range next {
		next[turn] = kv.Values{}
		for n := range count {
			m := accessList(fmt.Sprintf("list-%d", n))
			for i := range rules {
				action := acl.ACL_Rule_Action(2 * (i * (n + 7*turn) % 2)) // deny or reflect
				m.Rules = append(m.Rules, rule(action, "tcp", fmt.Sprintf("10.%d.%d.0/24", n, i), "", 80))
			}
			next[turn].Put(m)
			if turn == 0 {
				all = append(all, m.GetName())
			}
		}
	}
	a := vppagent.New(vppagent.Config{Caller: &granter{}})
	v := maps.Clone(next[1])
	for pod := range pods {
		v.Put(lists(fmt.Sprintf("tap%d", 1+pod), nil, all))
	}
	if c := a.Commit(context.Background(), &event.Txn{Resync: event.Full, Values: v}); c.Err != nil || c.Add < pods+count {
		b.Fatalf("%+v", c)
	}
	b.ReportAllocs()
	for turn := 0; b.Loop(); turn = 1 - turn {
		if c := a.Commit(context.Background(), &event.Txn{Values: next[turn]}); c.Writes != count+pods+count {
			b.Fatalf("%d writes", c.Writes)
		}
	}
}
