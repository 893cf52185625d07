package agent

import (
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
)

// withHost adds interfaces, routes and neighbours of the host to what the agent keeps (nil: everything in VPP), if other programs may
// ask for them and VPP is no simulation: then requests for them go to the kernel and all others to VPP.
func withHost(cfg Config, caller vppagent.Caller, kinds []*descriptor.Descriptor) (vppagent.Caller, []*descriptor.Descriptor) {
	if len(cfg.External) == 0 || cfg.Dial != nil {
		return caller, kinds
	}
	if kinds == nil {
		kinds = descriptor.All()
	}
	return &linux.Caller{VPP: caller}, append(kinds, linux.All()...)
}
