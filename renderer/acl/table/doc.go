// Package table turns runs of rules into tables: the contents of access lists, with the cause of each rule.
//
//	steps ─▶ Segments: a run of rules of one policy with one action ─▶ Table, or several by a hash of the peer ─┐
//	what needs no policy ──────────────────────────────────────────────────────────────────────────────────▶ Store ─▶ Value: the ACL
//
// Segments that name ports of SCTP also give a Filter: which associations may begin (ADR 11).
//
// Invariant: a segment with unchanged clauses and sets is not written again, and a table with unchanged rules keeps the value that was sent.
package table
