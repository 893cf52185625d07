package acl

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// An opening that follows from another translation in VPP happens together with that translation.
func TestTranslatedOpensLast(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], in2out("allow", "deny")), podMessage(0, withPolicies("", "a1")))
	s.settle(t)
	node := testNode(dataplane.PreDNAT)
	fresh := netip.MustParsePrefix("10.99.0.1/32")
	node.Frontends = append(node.Frontends, fresh)
	s.r.SetNode(node)
	if !s.r.Apply() {
		t.Error("opens at once")
	}
	if s.r.Apply() {
		t.Error("no end to it")
	}
	s.r.SetNode(testNode(dataplane.PreDNAT))
	if s.r.Apply() {
		t.Error("what only closes takes two steps")
	}
}
