// Package controller turns the stream of events into transactions. Its loop is the one goroutine that owns all mutable state.
//
//	sources ─ Update/SyncStatus ─┐                          ┌─ Txn ─▶ committer (vppagent) ─▶ VPP
//	external sources ─ External ─┼─▶ Step ─▶ Processors ─▶ Values
//	committer ─ Committed/Located┘         (renderers)      └─ at most one transaction in flight
//
// Invariant: Step does no I/O, starts nothing and reads no clock; the same events in the same order yield the same transactions. The
// controller programs nothing before every source was in sync once, VPP was connected, and VPP answered where the local pods are.
package controller
