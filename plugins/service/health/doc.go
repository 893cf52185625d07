// Package health turns services into HTTP servers that report to load balancers whether this node has endpoints of them
// (spec.healthCheckNodePort).
//
// Invariant: a port is open for as long as a service asks for it, and its answer shows the last received state of that service.
package health
