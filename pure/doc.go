// Package pure turns pure functions of services and of the node into a service renderer, and holds what such functions have in common.
//
//	seven methods ─▶ Renderer ─ the last of each fact ─▶ Functions ─ values, notes ─▶ renderer.Sink
//
// Invariant: whatever the calls were, the sink has what one Resync of the present facts would give.
package pure
