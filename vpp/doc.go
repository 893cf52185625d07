// Package vpp turns calls into binary-API messages on one ordered, pipelined connection to VPP, and replies into values.
//
//	Do(calls…) ──▶ Guard.Check ──▶ encode ──▶ out buffer ──▶ writer ──▶ socket ──▶ VPP
//	   ▲             (last word)     slot of the window        one write for all that gathered
//	   │                                                                          │
//	replies ◀── Guard.Observe ◀── decode, type check ◀── slot by context ◀── reader ◀┘
//	                                     └── events (no context) ──▶ dispatcher ──▶ Events callbacks
//
// Run owns the connection: dial, handshake (message table, CRC check), OnConnect calls, serve until it breaks, and again.
// While VPP is away Run tries to connect every 20 ms; it backs off only from a VPP that accepts and dies. Each connection
// is a generation with its own message ids, window and guard shadow.
//
// Invariant: every Call passed to Do gets exactly one Reply, in order: VPP's answer while the connection lives, or an error
// at once when it does not. No message is sent that the Guard knows to crash or silently corrupt VPP.
package vpp
