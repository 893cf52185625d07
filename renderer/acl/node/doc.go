// Package node turns the state of the node into the tables that need no policy: what the node, pods and NAT send and receive in any case.
//
// Invariant: the tables depend on the state of the node and their arguments alone.
package node
