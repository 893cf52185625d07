// Package nodeports turns values about node ports into requests for the kernel's packet filter, which hands their packets over to VPP, and the
// kernel's lists back into values.
//
// Invariant: the package changes only its own table, all rules at once, and keeps the ports when the rules change.
package nodeports

import "github.com/contiv-agent/contiv-agent/vppagent/descriptor"

// All returns the descriptors of this package. The agent's Caller must then be a *linux.Caller.
func All() []*descriptor.Descriptor { return []*descriptor.Descriptor{NodePorts(), NodePort()} }
