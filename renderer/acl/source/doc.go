// Package source turns the addresses of pods and of the node into source checks: tables that drop packets from any other address (ADR 13).
//
//	a pod's addresses ─▶ in front of the input of its interface: only these
//	addresses that only this node has ─▶ in front of the inputs of uplink and overlay: none of these
//
// Invariant: a check is the first table of its list, and no packet that it permits makes a session.
package source
