// Package l2 turns bridge domains, their members and MAC addresses, cross-connects and mirrored interfaces into requests.
//
// Invariant: an interface has one place at layer 2: in one bridge domain, at one end of a cross-connect, or none.
package l2
