// Package grpc turns calls of Contiv's and ligato's APIs for configuration from outside into requests for a Keeper, and what became of
// them into statuses.
//
// Invariant: a call returns when its transaction is done; what it returns as an error names every item that failed (up to a hundred).
// Nothing a request has is dropped without a word. Nobody without a certificate is heard from beyond this machine, unless that was
// asked for.
package grpc
