// Package grpc turns calls of Contiv's and ligato's APIs for external configuration into requests for a Keeper, and their results
// into statuses.
//
// Invariant: a call returns when its transaction is done; its error names every failed item (up to a hundred). The server never
// drops a part of a request silently. Beyond this machine it accepts only clients with a certificate, unless configured otherwise.
package grpc
