package realvpp

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// maskLine is a line of "show acl-plugin tables applied": how many rules of a lookup context have a mask, and how many at most share an entry of
// VPP's hash table.
var maskLine = regexp.MustCompile(`num_entries (\d+) max_collisions (\d+)`)

// evilEgress is the tenant's policy for the same set as evilPolicy, as the peers that its pods may send to.
func evilEgress(ports ...uint16) *model.Policy {
	p := evilPolicy(ports...)
	p.ID.Name, p.Ingress, p.Egress = "large-egress", false, true
	p.OutboundRules, p.InboundRules = p.InboundRules, nil
	p.OutboundRules[0].Destination.Selector, p.OutboundRules[0].Source = p.OutboundRules[0].Source.Selector, model.Peer{}
	return p
}

// TestVPPNeighboursShareEntries: on a node with the agent's other access lists, the rules for members whose addresses are near each other share
// entries of VPP's hash table. An interface that has one entry for each rule takes VPP's main thread four times as long to switch: tuple merge gives
// rules the first mask that contains theirs, so it depends on the rules before them.
func TestVPPNeighboursShareEntries(t *testing.T) {
	realVPP(t, "reads the tables of VPP's ACL plugin by its command line")
	ingress, egress := put(evilPolicy(80)), put(evilEgress(80))
	for name, policies := range map[string][]event.Change{"ingress": {ingress}, "egress": {egress}, "both": {ingress, egress}} {
		t.Run(name, func(t *testing.T) {
			w := openLoaded(t, 0, append(members(), policies...)...)
			full := 0
			for index := 0; index < 4*loadPods && full < len(policies); index++ {
				for _, m := range maskLine.FindAllStringSubmatch(w.l.cli(fmt.Sprint("show acl-plugin tables applied lc_index ", index)), -1) {
					rules, _ := strconv.Atoi(m[1])
					shared, _ := strconv.Atoi(m[2])
					if rules < loadMembers/2 {
						continue
					}
					if full++; shared < 8 {
						t.Errorf("lookup context %d: %d rules have a mask, and %d at most share an entry", index, rules, shared)
					}
				}
			}
			if full != len(policies) {
				t.Errorf("%d lookup contexts have the set, want %d", full, len(policies))
			}
		})
	}
}
