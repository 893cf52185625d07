package model

// StagedAction is what a staged policy would change if it were enforced. Source: Calico's API, spec.stagedAction.
type StagedAction string

// The actions. The empty action is that of a policy which is enforced.
const (
	StagedSet    StagedAction = "Set"    // the policy would exist with these rules, in place of one with the same name
	StagedDelete StagedAction = "Delete" // the policy of the same name would not exist
	StagedLearn  StagedAction = "Learn"  // Set, and a program still changes the rules
	StagedIgnore StagedAction = "Ignore" // nothing would change
)

// AnnotationStaged with the value "true" stages a policy of a kind that is enforced otherwise.
const AnnotationStaged = AnnotationPrefix + "staged"

// StagedAction is the action of a staged policy, and "" if the policy is enforced.
func (p *Policy) StagedAction() StagedAction {
	if info, known := p.ID.Kind.Info(); known && info.Staged && p.Staged == "" {
		return StagedSet
	}
	return p.Staged
}

// Listed reports whether data planes get the policy: to enforce it, or to list it as a staged policy, which they know by its kind. Others would
// take it for an enforced one.
func (p *Policy) Listed() bool {
	info, known := p.ID.Kind.Info()
	return p.Staged == "" || known && info.Staged && p.Staged != StagedDelete
}

// Target names the policy that a staged policy would create, replace or delete. It is the policy itself if an annotation stages it.
func (p *Policy) Target() PolicyID {
	id := p.ID
	switch id.Kind {
	case KindStagedKubernetesPolicy:
		id.Kind = KindNetworkPolicy
	case KindStagedNetworkPolicy:
		id.Kind = KindCalicoNetworkPolicy
	case KindStagedGlobalPolicy:
		id.Kind = KindGlobalNetworkPolicy
	}
	return id
}
