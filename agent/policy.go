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
	c := policy.Config{NodeName: cfg.NodeName, View4: dataplane.PreDNAT, View6: dataplane.PostDNAT, TrustNodeAddresses: cfg.TrustNodeAddresses, Limits: cfg.Limits}
	if cfg.postDNAT4() {
		c.View4 = dataplane.PostDNAT
	}
	if cfg.Driver != nil {
		return policy.New(c, cfg.Driver)
	}
	driver := acl.New(acl.Config{SourceCheck: cfg.SourceCheck, Evaluated: cfg.deniesUnknown()}, values)
	if cfg.Felix != nil {
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
