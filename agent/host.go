package agent

import (
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	allvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
)

// withHost adds the host's interfaces, routes and neighbours to the agent's kinds (nil: everything in VPP), if other
// programs may configure them and VPP is not a simulation: requests for them go to the kernel, all others to VPP.
func withHost(cfg Config, caller vppagent.Caller, kinds []*descriptor.Descriptor) (vppagent.Caller, []*descriptor.Descriptor) {
	if len(cfg.External) == 0 || cfg.VPP.Dial != nil {
		return caller, kinds
	}
	if kinds == nil {
		kinds = allvalues.All()
	}
	return &linux.Caller{VPP: caller}, append(kinds, linux.All()...)
}
