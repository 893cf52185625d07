// Package policer turns limits of interfaces into protobuf values and back; ligato has no message for them.
//
// Invariant: names and numbers are an interface to stored data; they are added to, never changed.
package policer
