package policy

import (
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Hits is the traffic that a rule decided: packets of flows without a session. A reply that makes no session (ADR 12) counts each
// time.
type Hits struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"` // of IP, and of the Ethernet header that the packet has where it leaves VPP
}

// Counted is a list of rules that a driver programmed, with the traffic that each rule decided.
type Counted struct {
	ID        uint32 // the same at every place of the list
	Interface string
	Output    bool // among the rules for packets that leave through the interface
	Place     int  // among those of the direction
	Rules     []Hits
}

// counted identifies a rule of a policy.
type counted struct {
	model.WireName
	egress bool
	rule   int
}

// spoofed stands for the deny rules of an endpoint's source check.
var spoofed = counted{rule: -1} // read only

// tally sums the counts of VPP's rules by the policy rule that they implement. One policy rule may become many rules in VPP.
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
			key := counted{model.WireName{Tier: c.Tier, Name: c.Policy}, c.Egress, c.Rule}
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
