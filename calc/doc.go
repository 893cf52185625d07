// Package calc turns the policies, endpoints and addresses of a whole cluster into the messages that Felix would send
// to the dataplane driver of one node. It is the calculation graph of Calico v3.31, as a synchronous function without
// input or output.
//
// Invariant: after any sequence of updates and flushes the messages sent so far describe the present state and nothing
// else, whatever the order. Every message refers only to things that earlier messages created: a set precedes the rules
// that name it, a policy precedes the endpoints it applies to, and removals are in reverse order.
//
// The graph leaves out messages of Felix's graph that no program here can use, or that another program sends: the BGP
// peer of a workload (LocalBgpPeer, for Felix's BIRD templates); that the datastore is not ready (Felix then exits; our
// sources report their own state); and policies and profiles before the graph is in sync. A FelixConfiguration enters
// as the parameters it sets for all nodes or for one: as in Felix, its source decides for which.
package calc
