// Package hubble turns an agent's flows into what Cilium's own programs and filters make of them: hubble, Hubble Relay and the filters of
// Cilium's server, all of version 1.20.2, as independent witnesses.
// Invariant: the product never imports it, nor it the product's insides beyond what a program outside would use.
package hubble
