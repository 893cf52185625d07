// Package report turns what an agent knows of objects and of itself into what people see in Kubernetes: Events on Services and
// policies, conditions of policies, a Lease for each node and a condition of the Node.
//
//	agent ─event.Report─▶ ledger ── what is due ──▶ Events, conditions of policies      every 5 s, if anything has changed
//	                  └─▶ pulse ──────────────────▶ Lease (every 10 s), condition of the Node (when it changes)
//
// Invariant: however many agents see the same problem, there is one Event for it, and all agents together send not many more than 50
// requests a second for what they have to tell of objects.
//
// An Event's name is made of the object's UID, the reason and the text, so that the API server itself refuses the second one of the
// same cause, whoever sends it, and an agent that was restarted finds what it told before. What follows from an object alone is the same
// on every node: five agents tell it, one after the other, chosen by a hash of object and node; the four others mostly find it told. What
// happens on a node that node tells, when it has lasted for 30 s, after a pause that grows with the number of nodes. Each agent has a
// bucket of tokens for its requests that fills the slower the more nodes there are. While a problem lasts its Event is told again each
// half an hour, as a series, so that it does not expire.
//
// An agent that follows a fan-out server tells Events, Lease and condition of the Node, too: of objects it then knows what they are called
// (Named), and of Services the UID.
//
// The recorders of client-go are made for one controller: their instance is the host's name, a series is of all texts with the same
// reason, two agents' Events are two, and each one that fails is tried for two minutes by a goroutine of its own.
package report
