package policy

import (
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Hits is how much a rule judged: packets that belong to no flow that was judged before. An answer that makes no session (ADR 12) counts
// each time.
type Hits struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"` // of IP, and of the Ethernet header it got where it leaves VPP
}

// Counted is a list of rules that a driver programmed, with what each of them judged.
type Counted struct {
	ID        uint32 // the same wherever the list is
	Interface string
	Output    bool // among those for what leaves through the interface
	Place     int  // among those of the direction
	Rules     []Hits
}

// DescribeCounted is Describe with what rules judged, according to the lists of the pod's interfaces. A rule that is in none
// of them has no hits: it never decides (pass, log, staged), or applies to no peer there is.
//
// A list of rules is one in VPP for all pods with the same policy, and so is its count.
func (p *Processor) DescribeCounted(id model.PodID, lists []Counted) (*Description, bool) {
	return p.describePod(id, p.tally(id.String(), lists))
}

// counted names a rule of a policy.
type counted struct {
	ruleList
	egress bool
	rule   int
}

// spoofed stands for the rules of an endpoint's source check that deny.
var spoofed = counted{rule: -1} // read only

// tally adds up what VPP's rules counted by the rules of the policies they come from; those of one may be many.
func (p *Processor) tally(endpoint string, lists []Counted) map[counted]*Hits {
	type once struct {
		counted
		list uint32
		at   int
	}
	seen, out := map[once]bool{}, map[counted]*Hits{}
	for i := range lists {
		l := &lists[i]
		for at, h := range l.Rules {
			c, ok := p.driver.Cause(l.Interface, l.Output, l.Place, at)
			if !ok || c.Kind != dataplane.CauseRule && c.Kind != dataplane.CauseSource || c.Endpoint != endpoint || c.Host {
				continue
			}
			key := counted{ruleList{c.Tier, c.Policy}, c.Egress, c.Rule}
			if c.Kind == dataplane.CauseSource {
				key = spoofed
			}
			if seen[once{key, l.ID, at}] {
				continue
			}
			seen[once{key, l.ID, at}] = true
			if out[key] == nil {
				out[key] = &Hits{}
			}
			out[key].Packets += h.Packets
			out[key].Bytes += h.Bytes
		}
	}
	return out
}
