// Package bridge models layer 2 of a VPP: bridge domains, their members and addresses, the L2 FIB, cross-connects, and how a frame is
// switched. It turns the roles of interfaces and two Ethernet addresses into the interfaces that a frame leaves by.
//
//	frame on a port ─▶ learn the source ─▶ L2 FIB ─ known ──▶ one port, unless it is the frame's own, or of its split-horizon group
//	                                              └ unknown ─▶ flood: every other port
//
// Invariant: an interface has at most one role, and only members of a domain are in its flood. A Table is not safe for concurrent use.
//
// BUGS. Addresses do not age. A domain does not answer ARP for its members (arp-term), and has no port for unknown unicast (uu-fwd).
package bridge
