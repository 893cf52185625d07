// Package space turns matches of packet headers into sets of headers, and lists of rules into decisions about every header.
//
// Invariant: two sets, or two decisions, of one Space are equal exactly if they hold the same headers: == compares them.
//
//	Box, Rule ─▶ diagram: source ─▶ destination ─▶ protocol ─▶ source port ─▶ destination port ─▶ TCP flags ─▶ verdict
//	             each node divides the values of one field into intervals; equal nodes exist once
//
// A diagram of bits (BDD) would need one node per bit of an address; a node here has an interval for each address that rules name.
package space
