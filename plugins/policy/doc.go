// Package policy turns Pods, Namespaces and policies of every kind into Felix's dataplane messages, hands them to the
// driver that programs them, and names for every packet the object and the rule behind its fate.
//
//	Apply(change) ─▶ convert: Pod → endpoint, Namespace, ServiceAccount → profile ─▶ calc.Graph ─ messages ─▶ Driver
//	Located, VPP, Translations ─▶ Node: where pods are, what is translated, which VPP it is ───────────────▶ Driver
//
// Invariant: what the driver was told last is a function of the present objects only, not of the way they came; and
// nothing is told before everything there was at the start has been applied.
package policy
