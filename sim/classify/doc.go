// Package classify turns classifier tables, their sessions and what is attached to interfaces into the verdict that the nodes
// ip4-inacl, ip4-outacl, ip6-inacl and ip6-outacl of VPP 24.06 give a packet.
//
//	interface ──▶ table ─ next ─▶ table ─ next ─▶ table ── miss index
//	               │ session          │ session         │ session      (bytes of the packet under the table's mask)
//	               └── hit index      └── hit index      └── hit index  0: drop; anything else here: go on
//
// Invariant: a request gets VPP's retval, traps included: a table that is attached or in a chain can be deleted, and what dies of it
// panics with *Crash; an attachment outlives its interface, and being there it makes the next "add" a success that does nothing.
//
// BUGS. A next index other than 0 goes on with the packet, as every one does that the node has no such next for (VPP numbers its
// nexts as features are enabled). Sessions do not advance packets, and their actions are noted but not done. What is behind the end of
// a packet is zero here; VPP compares what the buffer held before. Tables hold as many sessions as the memory they were given
// does for certain; VPP's may hold some more.
package classify
