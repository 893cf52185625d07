package acl

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A policy never becomes more rules or lists than the budget counts for it, on a VPP that compares IPv6 prefixes bit by bit and on one that does so
// by whole bytes. The budget does not count the copies that a negation makes of the rules behind it, so each policy here has one rule, and one of
// exceptions in front of it where it negates. No side has several sets, because the budget does not know their members.
func TestNoMoreRulesThanClaimed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := testNode(dataplane.PostDNAT)
		n.ByteMatch6 = rapid.Bool().Draw(t, "bytes")
		s := newScene(n)
		s.send(start()...)
		sets := map[string]*budget.Members{}
		for _, id := range setNames {
			members := some(t, id, apart, 8)
			sets[id] = new(budget.Members).Add(members, 1)
			s.send(setMessage(id, felix.IPSetUpdate_NET, members))
		}
		for _, id := range portSets {
			members := some(t, id, endpoints, 8)
			sets[id] = new(budget.Members).Add(members, 1)
			s.send(setMessage(id, felix.IPSetUpdate_IP_AND_PORT, members))
		}
		rule := drawRule(t)
		if rule.Action == "pass" || rule.Action == "next-tier" || rule.Action == "log" {
			rule.Action = "allow"
		}
		rule.NotSrcNamedPortIpSetIds, rule.NotDstNamedPortIpSetIds = nil, nil
		rule.SrcIpSetIds, rule.DstIpSetIds = rule.SrcIpSetIds[:min(1, len(rule.SrcIpSetIds))], rule.DstIpSetIds[:min(1, len(rule.DstIpSetIds))]
		p := &felix.Policy{InboundRules: []*felix.Rule{rule}}
		s.send(policyMessage(policyIDs[0], p), podMessage(0, withPolicies("a1", "")))
		for range 9 {
			if !s.r.Apply() {
				break
			}
		}
		claim := budget.OfMessage(p, func(id string) *budget.Members { return sets[id] }, n.ByteMatch6)
		lists, rules := s.r.pods.Store.CountSegments()
		if len(rule.NotSrcNet)+len(rule.NotDstNet)+len(rule.NotSrcIpSetIds)+len(rule.NotDstIpSetIds) > 0 || rule.NotProtocol != nil || rule.NotIcmp != nil {
			claim[budget.Rules] += excepted
			claim[budget.Tables] += 4 // the exceptions are a run of rules, too
		}
		if rules > claim[budget.Rules] || lists > claim[budget.Tables] {
			t.Fatalf("%d rules and %d lists, claimed were %d and %d: %v", rules, lists, claim[budget.Rules], claim[budget.Tables], rule)
		}
	})
}

// A policy becomes as many lists as the budget counts for it, for every number of lists: the driver has no other rule about that.
func TestAsManyListsAsClaimed(t *testing.T) {
	for rules, want := range map[int]int{256: 1, 257: 4, 512: 4, 513: 8, 1 << 15: 8, 1<<15 + 1: 16, 1 << 16: 16} {
		s := newScene(testNode(dataplane.PostDNAT))
		rule := &felix.Rule{Action: "allow", IpVersion: felix.IPVersion_IPV4}
		for i := range rules { // each in another range of 256 addresses: the driver spreads them by all but their last six bits
			rule.SrcNet = append(rule.SrcNet, netip.AddrFrom4([4]byte{byte(20 + i>>16), byte(i >> 8), byte(i), 1}).String()+"/32")
		}
		slices.Sort(rule.SrcNet)
		rule.SrcNet = slices.Compact(rule.SrcNet)
		if len(rule.SrcNet) != rules {
			t.Fatalf("%d addresses of %d", len(rule.SrcNet), rules)
		}
		p := &felix.Policy{InboundRules: []*felix.Rule{rule}}
		s.send(append(start(), policyMessage(policyIDs[0], p), podMessage(0, withPolicies("a1", "")))...)
		s.settle(t)
		claim := budget.OfMessage(p, func(string) *budget.Members { return nil }, false)
		if lists, n := s.r.pods.Store.CountSegments(); lists != want || claim[budget.Tables] != want || n != rules || claim[budget.Rules] != rules {
			t.Errorf("%d rules: %d rules and %d lists, claimed were %d and %d, want %d lists", rules, n, lists, claim[budget.Rules], claim[budget.Tables], want)
		}
	}
}

// apart are members of sets, none of which holds another.
var apart = strings.Fields("10.1.1.1/32 10.1.1.2/32 10.1.1.3/32 10.1.2.1/32 8.0.0.0/7 128.0.0.0/1 fd00:1::1/128 fd00:1::2/128 fd00:2::1/128 2001:db8::/32 fd80::/9")

// excepted is the number of rules of an exception beyond what it names: protocols, and the rules that decide about them.
const excepted = 8
