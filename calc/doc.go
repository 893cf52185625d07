// Package calc turns the policies, endpoints and addresses of a whole cluster into the messages Felix's dataplane driver
// of one node would get: the calculation graph of Calico v3.31, as a synchronous function without input or output.
//
// Invariant: after any sequence of updates and flushes the messages sent so far describe the present state and nothing
// else, whatever the path; and at every message all that earlier ones refer to exists: a set before the rules that name
// it, a policy before the endpoints it applies to, removals in reverse.
package calc
