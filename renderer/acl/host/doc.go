// Package host turns host endpoints into tables at the uplink, the overlay and the host link.
//
//	from outside, from the node ─▶ Hook: tables at the input of the interface
//	forwarded ─▶ Exit: tables at the output of the interface, and in front of the programs of local pods
//
// Invariant: of several endpoints at an interface one counts: the first by name, and an endpoint for all interfaces last.
package host
