// Package rpc turns requests of Contiv's API for configuration from outside into
// protobuf messages and back. Invariant: names and numbers are an interface to
// clients that exist; they are added to, never changed.
package rpc
