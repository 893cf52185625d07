// Package client turns a program's desired configuration of VPP into calls of an agent's API for external configuration,
// and the answered statuses into errors that name each item.
//
// Invariant: a request is one transaction. Items that the API cannot express are an error before anything is sent.
package client
