// Package relay turns the state of a node into a number on the wire and back: Hubble's API restated. Invariant: names and numbers are
// an interface to other programs; they are added to, never changed.
package relay
