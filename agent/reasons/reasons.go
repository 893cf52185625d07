// Package reasons finds the object behind a rule in VPP: the policy rule, or the Service whose source ranges deny a client.
//
// Invariant: a rule that the agent has sent to VPP has a reason; a rule of another program has none.
package reasons

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// Finder finds reasons. It belongs to the goroutine that owns its parts.
type Finder struct {
	Values   Values
	Policies Policies // nil: policies are not enforced
	VPPAgent Fronts
}

// Policies explains the rules of policies; policy.Processor implements it.
type Policies interface {
	// Explain returns the reason of a rule of an access list, by its place among those that the renderer wanted.
	Explain(iface string, output bool, place, rule int) (policy.Reason, bool)
}

// Values are the desired values as they were last sent; controller.Values implements it.
type Values interface {
	Sent(key string) proto.Message
	Each(f func(key string, value proto.Message))
}

// Fronts reports whether the access list of source ranges is the first on an interface's input; vppagent.Agent implements it.
type Fronts interface {
	Fronted(iface string) bool
}

// Explain returns the policy rule behind a rule of an interface's access lists: the rule number in the input list, or with
// output in the output list; -1 is the end of the list. False: the list is foreign.
func (f *Finder) Explain(iface string, output bool, place, rule int) (policy.Reason, bool) {
	if !output && f.VPPAgent.Fronted(iface) {
		if place == 0 && rule >= 0 {
			return f.explainRange(rule)
		}
		place--
	}
	if f.Policies == nil {
		return policy.Reason{}, false
	}
	return f.Policies.Explain(iface, output, place, rule)
}
