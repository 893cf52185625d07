// Package observer turns requests for flows into messages on the wire and back: Hubble's API restated. Invariant: names and numbers
// are an interface to other programs; they are added to, never changed.
package observer
