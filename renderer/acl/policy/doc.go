// Package policy turns the policies and profiles of an endpoint into steps: one list whose first match decides.
//
//	policies, profiles ─▶ Book ─┐
//	tiers of an endpoint ─▶ Spec ┴▶ Flatten ─▶ Steps: runs of clauses with one action
//
// A rule that passes becomes a part of the steps behind it. A clause with too many negations becomes exceptions in front of it (Unfold).
//
// Invariant: equal rules give the same pointers, so that nothing changes that is made of unchanged rules. The last of the flattened steps decides
// every packet.
package policy
