package convert

import (
	"github.com/contiv-agent/contiv-agent/model"
)

func (o *stagedKubernetesPolicy) convert(ps *problems) *model.Policy {
	return ps.withAction(networkPolicy(model.KindStagedKubernetesPolicy, &o.Spec.NetworkPolicySpec, ps), o.Spec.StagedAction)
}

// withAction adds the action of a staged policy. One that stages a removal has no rules.
func (ps *problems) withAction(p *model.Policy, action string) *model.Policy {
	switch a := model.StagedAction(action); a {
	case "", model.StagedSet:
	case model.StagedLearn, model.StagedIgnore:
		p.Staged = a
	case model.StagedDelete:
		return &model.Policy{ID: p.ID, Staged: a, Tier: p.Tier, Namespace: p.Namespace}
	default:
		ps.Add("spec.stagedAction", "must be Set, Delete, Learn or Ignore", action)
	}
	return p
}

// readStaged reads the annotation that stages a policy. A policy with another value than true or false is enforced.
func readStaged(p *model.Policy, annotations map[string]string, ps *problems) {
	if info, known := p.ID.Kind.Info(); known && info.Staged {
		return
	}
	switch value := annotations[model.AnnotationStaged]; value {
	case "", "false":
	case "true":
		p.Staged = model.StagedSet
	default:
		ps.Add("metadata.annotations["+model.AnnotationStaged+"]", "must be true or false", value)
	}
}
