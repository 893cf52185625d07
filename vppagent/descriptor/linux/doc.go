// Package linux turns values for interfaces, routes and neighbours of the host into netlink requests, and what the kernel lists
// back into values. It has descriptors like those for VPP, requests that look like VPP's messages, and a Caller that tells the two
// apart, so that everything else (order, dependencies, journal, retries, plans) is the agent's.
//
// Invariant: only what was asked for is touched. Links it makes carry its alias, routes its protocol number; of interfaces others
// made it changes what values say and leaves the rest.
package linux

import "github.com/contiv-agent/contiv-agent/vppagent/descriptor"

// All are the descriptors of this package; the agent's Caller has to be a *Caller then.
func All() []*descriptor.Descriptor {
	return []*descriptor.Descriptor{Interface(), Route(), ARPEntry()}
}
