// Package abf turns forwarding by access lists into requests to the plugin abf: policies, and the interfaces that have them.
//
// Invariant: a policy never has a path twice; VPP aborts if it receives one.
package abf
