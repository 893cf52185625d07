package acl

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// oneOf draws a rule of few kinds, so that rules repeat: many lines, a set, a set with a note, a pass. Wide rules allow, so that
// one segment has many and is split.
func oneOf(t *rapid.T, egress, wide bool) *felix.Rule {
	r := &felix.Rule{Action: "allow"}
	kind, n := pick(t, "kind", []int{0, 0, 1, 3}), rapid.IntRange(0, 9).Draw(t, "n")
	if !wide {
		r.Action = pick(t, "action", []string{"allow", "allow", "allow", "deny", "pass"})
		kind = rapid.IntRange(0, 4).Draw(t, "kind")
	}
	var nets, sets []string
	switch kind {
	case 0:
		nets = []string{fmt.Sprintf("10.%d.0.0/16", n)}
	case 1:
		for i := range 100 {
			nets = append(nets, fmt.Sprintf("10.%d.7.%d/32", n, i))
		}
	case 2:
		sets = []string{"s1"}
	case 3: // one of the sets is unknown
		sets = []string{"s1", pick(t, "set", []string{"s2", "unheard-of"})}
	case 4:
		r.Protocol = &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "sctp"}}
		r.DstPorts = []*felix.PortRange{{First: int32(n), Last: 90}}
		sets = []string{"s1"}
	}
	if egress {
		r.DstNet, r.DstIpSetIds = nets, sets
	} else {
		r.SrcNet, r.SrcIpSetIds = nets, sets
	}
	return r
}

// edited returns rules of which some are changed, removed, added or moved.
func edited(t *rapid.T, rules []*felix.Rule, egress, wide bool) []*felix.Rule {
	out := slices.Clone(rules)
	for range rapid.IntRange(0, 3).Draw(t, "edits") {
		at := rapid.IntRange(0, len(out)).Draw(t, "at")
		switch how := rapid.IntRange(0, 3).Draw(t, "how"); {
		case how == 0 || at == len(out):
			out = slices.Insert(out, at, oneOf(t, egress, wide))
		case how == 1:
			out = slices.Delete(out, at, at+1)
		case how == 2:
			out[at] = oneOf(t, egress, wide)
		default:
			moved := out[at]
			out = slices.Insert(slices.Delete(out, at, at+1), rapid.IntRange(0, len(out)-1).Draw(t, "to"), moved)
		}
	}
	return out
}

// TestRepeatedPolicy: a policy that is sent again with some rules changed, between changes of its sets, gives the same result as
// if it were sent for the first time: tables, lists, notes, and the cause of each rule.
func TestRepeatedPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(testNode(pick(t, "view", []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT})))
		s.send(start()...)
		s.send(podMessage(0, withPolicies("a1", "a1")), podMessage(1, withPolicies("a1", "")))
		p, wide := &felix.Policy{}, rapid.Bool().Draw(t, "wide")
		for range rapid.IntRange(0, 12).Draw(t, "rules") {
			p.InboundRules, p.OutboundRules = append(p.InboundRules, oneOf(t, false, wide)), append(p.OutboundRules, oneOf(t, true, wide))
		}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				kind := pick(t, "kind", []felix.IPSetUpdate_IPSetType{felix.IPSetUpdate_NET, felix.IPSetUpdate_NET, felix.IPSetUpdate_IP_AND_PORT})
				s.send(setMessage("s1", kind, []string{pick(t, "member", append(nets, "no address"))}))
			case 1:
				d := &felix.IPSetDeltaUpdate{Id: pick(t, "set", []string{"s1", "s2"})}
				for range 3 {
					d.AddedMembers = append(d.AddedMembers, pick(t, "member", nets))
				}
				if slices.Sort(d.AddedMembers); rapid.Bool().Draw(t, "leave") {
					d.AddedMembers, d.RemovedMembers = nil, d.AddedMembers
				}
				s.send(&felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}})
			default:
				p = &felix.Policy{InboundRules: edited(t, p.InboundRules, false, wide), OutboundRules: edited(t, p.OutboundRules, true, wide)}
			}
			s.send(policyMessage(policyIDs[0], proto.Clone(p).(*felix.Policy)))
			s.settle(t)
		}
		fresh := newScene(s.r.pods.Node.Node)
		fresh.send(s.w.all()...)
		fresh.settle(t)
		if !maps.EqualFunc(fresh.b.acls, s.b.acls, func(a, b *vppacl.ACL) bool { return proto.Equal(a, b) }) {
			t.Fatalf("tables: -from scratch +sent again\n%s", cmp.Diff(fresh.b.acls, s.b.acls, protocmp.Transform()))
		}
		if diff := cmp.Diff(fresh.b.lists, s.b.lists, protocmp.Transform()); diff != "" {
			t.Fatalf("lists: -from scratch +sent again\n%s", diff)
		}
		if diff := cmp.Diff(fresh.b.ports, s.b.ports, protocmp.Transform()); diff != "" {
			t.Fatalf("ports of SCTP: -from scratch +sent again\n%s", diff)
		}
		if diff := cmp.Diff(fresh.b.notes, s.b.notes); diff != "" {
			t.Fatalf("notes: -from scratch +sent again\n%s", diff)
		}
		sameCauses(t, fresh, s)
	})
}

// sameCauses compares the causes of the rules of all lists.
func sameCauses(t *rapid.T, want, got *scene) {
	for name, l := range want.b.lists {
		for output, tables := range map[bool][]string{false: l.GetInput(), true: l.GetOutput()} {
			for place, table := range tables {
				for rule := range want.b.acls[table].GetRules() {
					a, _ := want.r.Cause(name, output, place, rule)
					if b, ok := got.r.Cause(name, output, place, rule); !ok || a != b {
						t.Fatalf("%s output %v, %s rule %d: from scratch %+v, sent again %+v", name, output, table, rule, a, b)
					}
				}
			}
		}
	}
}
