package config

import (
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	allvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/rcu"
)

// WithHost adds the host's interfaces, routes and neighbours to the agent's kinds (nil: everything in VPP), if other
// programs may configure them and VPP is not a simulation: requests for them go to the kernel, all others to VPP. Interfaces that values
// make for pods are closed until evaluated, as unknown ones are. Beside a simulation the host's values are those of Pods.Kernel.
func (c *Config) WithHost(caller vppagent.Caller, kinds []*descriptor.Descriptor) (vppagent.Caller, []*descriptor.Descriptor) {
	if len(c.External) == 0 {
		return caller, kinds
	}
	if kinds == nil {
		kinds = allvalues.All()
	}
	if c.DeniesUnknown() {
		kinds = acl.ClosePods(kinds)
	}
	if c.VPP.Dial != nil {
		if c.Pods != nil {
			kinds = append(kinds, c.Pods.Kernel...)
		}
		return caller, kinds
	}
	if c.Pods != nil {
		caller = &rcu.Caller{VPP: caller, Expedite: c.Pods.Expedite}
	}
	return &linux.Caller{VPP: caller}, append(append(kinds, linux.All()...), nodeports.All()...)
}
