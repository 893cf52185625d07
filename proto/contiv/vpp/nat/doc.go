// Package nat turns the size and timing of the NAT44 session table, and who may
// use an address, into protobuf values and back; ligato has no message for
// them. Invariant: names and numbers are an interface to stored data; they are added to, never changed.
package nat
