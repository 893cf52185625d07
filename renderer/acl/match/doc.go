// Package match turns rules of Felix into matches, and matches into the lines of access lists.
//
//	felix.Rule ─▶ Parser ─▶ Match ─▶ Clause: matches that must all hold, a verb, a cause ─▶ Expander, with Sets ─▶ Atom: one line
//
// A Match keeps negations, lists and names of sets, as the rule has them. An Atom has two prefixes, a protocol and two spans of ports, as VPP does.
//
// Invariant: the atoms of a clause match exactly the packets that the clause matches. What VPP cannot express, or is unknown, allows nothing, or
// denies everything.
package match
