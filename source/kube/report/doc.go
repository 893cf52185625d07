// Package report turns an agent's report about objects and itself into what people see in Kubernetes: Events on Services
// and policies, conditions of policies, a Lease for each node and a condition of the Node.
//
//	agent ─event.Report─▶ ledger ── what is due ──▶ Events, conditions of policies      every 5 s, if anything has changed
//	                  └─▶ pulse ──────────────────▶ Lease (every 10 s), condition of the Node (when it changes)
//
// Invariant: a problem has one Event, however many agents see it. All agents together send little more than 50 requests a
// second about objects.
//
// An Event's name is a hash of the object's UID, the reason and the text. The API server therefore rejects a second Event
// for the same cause, whichever agent sends it, and a restarted agent finds the Event it created before. A problem of the
// object itself is the same on every node: five agents, chosen by a hash of object and node, report it one after the other,
// and the later four mostly find the Event. A problem of one node is reported by that node once it has lasted for 30 s,
// after a pause that grows with the number of nodes. Each agent has a token bucket for its requests; its rate falls with
// the number of nodes. While a problem lasts, its Event is renewed every half hour as a series, so that it does not expire.
//
// An agent that follows a fan-out server also reports Events, the Lease and the condition of the Node. It knows objects by
// name (Named), and the UID of Services only.
//
// client-go's recorders suit a single controller and do not fit here. Their reporting instance is the host's name, one
// series spans all texts with the same reason, two agents create two Events, and a goroutine per failed Event retries for
// two minutes.
package report
