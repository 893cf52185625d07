// Package egress turns the egress programs of local pods into tables where packets to Services leave VPP.
//
//	Program, sources ─┬─▶ residue: the ports that the program denies at a local pod ─▶ tables that pods with equal residues share
//	                  └─▶ the program for these sources ─▶ tables at the uplink, the overlay and the host link
//
// Invariant: the result depends on the present programs, pods and sets only, not on earlier ones.
package egress
