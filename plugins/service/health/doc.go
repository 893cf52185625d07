// Package health turns services into HTTP servers that tell load balancers whether this node has endpoints of them
// (spec.healthCheckNodePort).
//
// Invariant: a port is open for as long as a service asks for it, and what it answers is what was last told of that service.
package health
