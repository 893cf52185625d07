// Package linux turns values for interfaces, routes and neighbours of the host into netlink requests, and the kernel's lists back
// into values. It has descriptors like those for VPP, requests that look like VPP's messages, and a Caller that separates the two.
// So the agent's engine does all the rest (order, dependencies, journal, retries, plans).
//
// Invariant: the package changes only what values state. Links that it makes carry its alias, and routes its protocol number. On
// foreign interfaces it changes the stated attributes and keeps all others.
package linux

import "github.com/contiv-agent/contiv-agent/vppagent/descriptor"

// All returns the descriptors of this package. The agent's Caller must then be a *Caller.
func All() []*descriptor.Descriptor {
	return []*descriptor.Descriptor{Interface(), Route(), ARPEntry(), Handover(), HostPort()}
}
