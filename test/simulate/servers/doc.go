// Package servers turns the API server and the etcd in memory into what agents follow: sources as contiv-agent run has them, faults with a beginning and an end, and
// the values that etcd has for a node.
//
// Invariant: the end of a fault undoes its beginning, in any order with other faults.
package servers

import "time"

// Kind is a kind of action, as schedules print it.
type Kind string

// Fault is an action of a server.
type Fault struct {
	Kind Kind
	For  time.Duration // between its beginning and its end
	N    int           // its measure, or what draws it
}
