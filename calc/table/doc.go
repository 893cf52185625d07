// Package table turns the desired state of one kind of object into messages for a data plane.
//
// Invariant: after a flush the sent state equals the desired state. A flush sends only the difference, in the order of keys, whatever happened in
// between.
package table
