// Package client turns what a program wants in VPP into calls of an agent's API for configuration from outside, and the statuses it
// answers with into errors that name each item.
//
// Invariant: a request is one transaction. What the agent has no word for is an error before anything is sent.
package client
