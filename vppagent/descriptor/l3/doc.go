// Package l3 turns tables, routes, routes that reject, neighbours and proxy ARP into requests, and finds where addresses are in VPP
// (Locate).
//
// Invariant: a route of another client of VPP is never replaced by one that rejects.
package l3
