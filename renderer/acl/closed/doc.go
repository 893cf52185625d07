// Package closed turns the programs of closed pods into tables at the inputs of the packets' senders. A closed pod has policies in both directions.
//
//	closed pods' ingress and egress, one sender ─▶ refusal: ports ─▶ tables at local pods' inputs, shared by senders with equal refusals
//	closed pods' ingress and egress ─▶ invitation: one program ─▶ tables at the inputs of uplink and overlay
//
// Invariant: a table here denies only what the closed pod's own list denies, unless a session passes it there.
package closed
