// Package simulate turns a seed into agents, simulated VPPs, an API source, external clients, and a schedule of faults, all in one bubble of
// testing/synctest with virtual time, and into a verdict.
//
//	seed ─ Draw ─▶ Schedule ─ Run ─▶ Result: nil, or the first broken law
//	                  ▲                 │
//	                  └──── Shorten ◀───┘   without actions that are not needed
//
// Invariant: a seed draws the same clusters, actions and times each time. The order in which goroutines run between two moments of virtual
// time is the scheduler's, so a failure that depends on it may need several runs.
package simulate
