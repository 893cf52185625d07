// Package enforce turns what is known about a node into what a driver of policies is told beside Felix's messages, and what
// the driver did into words of Felix's: the nouns that whoever tells a driver and the driver itself share.
//
//	plugins/policy ── Node ─▶ renderer/acl
//	               ◀─ Cause ──
//
// Invariant: plain values without behaviour but comparison; what was handed across is never changed afterwards, by either side.
package enforce
