// Package enforce turns facts about a node, and the decisions of a driver of policies, into plain values.
// plugins/policy and the driver share these values; Felix's messages do not carry them.
//
//	plugins/policy ── Node ─▶ renderer/acl
//	               ◀─ Cause ──
//
// Invariant: values have no behaviour but comparison, and neither side changes a value after it was passed.
package enforce
