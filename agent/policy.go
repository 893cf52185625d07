package agent

import (
	"context"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// newPolicies wires policies: the processor drives the renderer of access lists, which writes values. For an input's access
// lists: nat44 has not translated IPv4 yet; cnat has, and without a renderer for IPv6 nothing is translated.
func newPolicies(cfg Config, values *controller.Values) *policy.Processor {
	c := cfg.Policies.Config
	c.NodeName, c.Limits, c.View4, c.View6 = cfg.NodeName, cfg.Limits, dataplane.PreDNAT, dataplane.PostDNAT
	if cfg.PostDNAT4() {
		c.View4 = dataplane.PostDNAT
	}
	if cfg.Policies.Driver != nil {
		return policy.New(c, cfg.Policies.Driver)
	}
	lists := cfg.Policies.ACL
	lists.Evaluated, lists.Limits = cfg.DeniesUnknown(), cfg.Limits
	driver := acl.New(lists, values)
	if cfg.Policies.Felix != nil {
		return policy.NewStream(c, cfg.Override, driver)
	}
	return policy.New(c, driver)
}

// Policy returns the policies of a pod of this node, with VPP's counters if rules are counted; nil: it has no endpoint here.
func (a *Agent) Policy(ctx context.Context, pod model.PodID) (*policy.Description, error) {
	var d *policy.Description
	err := a.inLoop(ctx, func() {
		if a.policies != nil {
			d, _ = a.policies.Describe(pod)
		}
	})
	if err == nil && d != nil && a.counters.Counters != nil {
		d = a.counters.Describe(ctx, pod, d)
	}
	return d, err
}
