// Package policy turns Pods, Namespaces and policies of every kind into Felix's dataplane messages, and sends them to the driver
// that programs them. For every packet it names the object and the rule that decide.
//
//	Apply(change) ─▶ convert: Pod → endpoint, Namespace, ServiceAccount → profile ─▶ calc.Graph ─ messages ─▶ Driver
//	Located, VPP, Translations ─▶ Node: where pods are, what is translated, which VPP it is ───────────────▶ Driver
//
// Invariant: the messages sent to the driver depend on the present objects only, not on the order of changes. The package sends
// nothing before every object that existed at the start has been applied.
package policy
