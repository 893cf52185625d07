// Package trace turns questions about packets into verdicts. It runs one agent and one simulated VPP per Node of the given
// objects, and packets cross between them.
//
//	objects ─▶ per node: sim + CNI's interfaces ◀─ binary API ─ agent (the same code that runs on a node)
//	question ─▶ packet into the client's node ─▶ hop by hop ─▶ backend ─▶ its reply ─▶ back at the client?
//
// Invariant: an answer to a question changes no state, so answers do not depend on the order of questions.
package trace
