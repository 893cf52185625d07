// Package budget turns what Kubernetes objects ask for into sizes, before anything is expanded, and sizes into verdicts: which objects
// are programmed, and which are refused because they, their namespace or the node would have too much.
//
//	policy, Service ─▶ OfPolicy, OfMessage, OfService ─ Size ─▶ Ledger ─▶ refused: reason
//
// Invariant: a verdict depends on the claims in the ledger alone, not on the order in which they came. An older object is never refused
// because of a younger one.
package budget
