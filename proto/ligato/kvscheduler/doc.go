// Package kvscheduler turns what became of a value into a protobuf value and
// back: the ligato v3 status messages. Invariant: names and numbers are an
// interface to other programs; they are added to, never changed.
package kvscheduler
