// Package calc turns the policies, endpoints and addresses of a whole cluster into the messages Felix's dataplane driver
// of one node would get: the calculation graph of Calico v3.31, as a synchronous function without input or output.
//
// Invariant: after any sequence of updates and flushes the messages sent so far describe the present state and nothing
// else, whatever the path; and at every message all that earlier ones refer to exists: a set before the rules that name
// it, a policy before the endpoints it applies to, removals in reverse.
//
// Left out of what Felix's graph says, because nobody here could use it or somebody else says it: the BGP peer of a
// workload (LocalBgpPeer, for Felix's BIRD templates), that the datastore is not ready (Felix then ends; a source of
// ours that is not in sync says so itself), and policies and profiles before all is known. A FelixConfiguration is told
// as the parameters it comes to for all nodes, or for one: whom it is for is its source's business, here as there.
package calc
