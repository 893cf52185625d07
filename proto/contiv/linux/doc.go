// Package linux turns what the node's network stack forwards for VPP into protobuf values and back; ligato has no message for it. Invariant:
// names and numbers are an interface to stored data; they are added to, never changed.
package linux
