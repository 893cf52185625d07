// Package hubble turns the flows of an agent into answers of Hubble's API, by which Cilium's clients read them: hubble, Hubble Relay,
// Hubble's UI.
//
//	request ─▶ compiled filters ┐
//	Watcher ─▶ flows ─ convert ─┴─▶ choose ─▶ fields of the mask ─▶ client
//
// Invariant: a filter is evaluated as Cilium evaluates it, or the call fails with the name of its field.
package hubble
