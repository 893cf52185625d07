// Package classify turns classifier tables, their sessions and their attachments to interfaces into the verdict that the nodes
// ip4-inacl, ip4-outacl, ip6-inacl and ip6-outacl of VPP 24.06 give a packet.
//
//	interface ──▶ table ─ next ─▶ table ─ next ─▶ table ── miss index
//	               │ session          │ session         │ session      (bytes of the packet under the table's mask)
//	               └── hit index      └── hit index      └── hit index  0: drop; anything else here: continue
//
// Invariant: a request gets VPP's retval, traps included. VPP accepts the deletion of a table that is attached or in a chain, and
// the resulting crash is a panic with *Crash. An attachment outlives its interface, and makes the next "add" a success that does
// nothing.
//
// BUGS. A next index other than 0 lets the packet continue, as in VPP every index does that is not a next of the node (VPP numbers
// its nexts as features are enabled). Sessions do not advance packets, and their actions are recorded but not done. Bytes after the
// end of a packet are zero here; VPP compares the buffer's earlier content. Tables hold the number of sessions that certainly fits
// into their memory; VPP's may hold some more.
package classify
