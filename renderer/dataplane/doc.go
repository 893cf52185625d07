// Package dataplane turns facts about a node, and the decisions of a driver of policies, into plain values, and names the
// interface of such a driver. plugins/policy and the driver share these values; Felix's messages do not carry them.
//
//	plugins/policy ── Node ─▶ renderer/acl
//	               ◀─ Cause ──
//
// Invariant: values have no behaviour but comparison, and neither side changes a value after it was passed.
package dataplane
