// Package controller turns the stream of events into transactions: the one goroutine that owns all mutable state.
//
//	sources ─ Update/SyncStatus ─┐                          ┌─ Txn ─▶ committer (vppagent) ─▶ VPP
//	external sources ─ External ─┼─▶ Step ─▶ Processors ─▶ Values
//	committer ─ Committed/Located┘         (renderers)      └─ at most one transaction in flight
//
// Invariant: Step does no I/O, starts nothing and reads no clock; the same events in the same order yield the same
// transactions. Nothing is programmed before every source was in sync once, VPP was there, and the local pods were
// looked up in it.
package controller
