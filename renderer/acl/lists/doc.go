// Package lists turns tables into the lists of an interface: which tables, in which order, and joined if they are too many.
//
//	places: [source check] [no-sctp] tables without a policy, tables of other programs, tables of the own program ─▶ Packs ─▶ Lists
//
// A list that may stand between two others, while a change is half done, is made here, too (CommonTables and others).
//
// Invariant: the lists of an interface have at most the given number of tables. A list between two others lets pass only what both do.
package lists
