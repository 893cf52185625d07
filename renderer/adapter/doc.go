// Package adapter turns pure functions of Services and of the node into a service renderer, and holds helpers that such
// functions share.
//
//	seven methods ─▶ Renderer ─ latest state of each fact ─▶ Functions ─ values, notes ─▶ renderer.Sink
//
// Invariant: after any sequence of calls the sink holds what one Resync of the present facts would give.
package adapter
