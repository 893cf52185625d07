package verify

import (
	"cmp"
	"slices"

	"github.com/contiv-agent/contiv-agent/fields"
	"github.com/contiv-agent/contiv-agent/model"
)

// Complete returns the objects as the report's agent uses them: with policies that it refuses as ones that deny, and with its ranges of cluster IPs.
func (r *Report) Complete(objects []model.Object) []model.Object {
	refused := map[model.Ref]string{}
	for _, p := range r.RefusedPolicies {
		refused[model.Ref{Kind: model.Kind(p.Kind), Namespace: p.Namespace, Name: p.Name}] = p.Why
	}
	out, _, _ := closeRefused(objects, refused)
	return append(slices.Clip(out), &model.ServiceCIDR{CIDRs: r.ServiceCIDRs})
}

// closeRefused replaces refused policies by ones that deny, and names them.
func closeRefused(objects []model.Object, refused map[model.Ref]string) (out []model.Object, names []string, list []Refusal) {
	if len(refused) == 0 {
		return objects, nil, nil
	}
	out = slices.Clone(objects)
	deny := []model.Rule{{Action: model.ActionDeny}}
	for i, o := range out {
		p, is := o.(*model.Policy)
		why, closed := refused[o.Ref()]
		if !is || !closed {
			continue
		}
		closedPolicy := *p
		closedPolicy.InboundRules, closedPolicy.OutboundRules = deny, deny
		out[i], names = &closedPolicy, append(names, p.Ref().String()+": "+why)
		list = append(list, Refusal{fields.Object{Kind: string(p.ID.Kind), Namespace: p.ID.Namespace, Name: p.ID.Name}, why})
	}
	slices.Sort(names)
	slices.SortFunc(list, func(a, b Refusal) int { return cmp.Compare(a.String(), b.String()) })
	return out, names, list
}
