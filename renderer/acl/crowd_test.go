package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Sets that make too many rules only together, so that lists must be joined: the pod's ingress is denied, with a note; no trace
// remains when one of the sets is small again.
func TestTooManyTogether(t *testing.T) {
	const most, many = 400, 300
	s := newTightScene(testNode(dataplane.PostDNAT), true)
	s.r.pods.Segs.Most = most
	s.send(start()...)
	var list []string
	for i := range many {
		list = append(list, fmt.Sprintf("10.7.%d.%d/32", i/256, i%256))
	}
	var rules []*felix.Rule
	for i := range 24 { // adjacent rules have different verbs
		action := []string{"allow", "deny"}[i%2]
		rules = append(rules, &felix.Rule{Action: action, SrcNet: []string{fmt.Sprintf("10.8.%d.0/24", i)}})
	}
	rules = append(rules, &felix.Rule{Action: "allow", SrcIpSetIds: []string{"s1"}}, &felix.Rule{Action: "deny", SrcIpSetIds: []string{"s2"}}, &felix.Rule{Action: "allow"})
	s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: rules}), podMessage(0, withPolicies("a1", "")))
	s.send(setMessage("s1", felix.IPSetUpdate_NET, list))
	check := func(when string, allowed bool) {
		t.Helper()
		s.settle(t)
		for name, a := range s.b.acls {
			if len(a.GetRules()) > 4*most { // a rule is up to four: see law
				t.Errorf("%s: %s has %d rules", when, name, len(a.GetRules()))
			}
		}
		if got := s.b.on("if-p1", true, packet{netip.MustParseAddr("10.7.0.1"), podIPs[0][0], match.TCP, 40000, 80}); got != allowed {
			t.Errorf("%s: passes %v", when, got)
		}
		if probe := (packet{nodeIPs[0], podIPs[0][0], match.TCP, 40000, 80}); !s.b.on("if-p1", true, probe) {
			t.Errorf("%s: the node does not reach its pod", when)
		}
		said := slices.ContainsFunc(s.b.notes["acl/note/interface|if-p1"], func(n model.Note) bool { return strings.Contains(n.Reason, "too many rules") })
		if said == allowed {
			t.Errorf("%s: notes %v", when, s.b.notes)
		}
	}
	check("one set", true)
	s.send(setMessage("s2", felix.IPSetUpdate_NET, list))
	check("two sets", false)
	s.send(setMessage("s1", felix.IPSetUpdate_NET, list[:10]))
	check("one is small", true)
}
