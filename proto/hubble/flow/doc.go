// Package flow turns flows into Hubble's messages on the wire and back: Cilium's API restated. Invariant: names and numbers are an
// interface to other programs; they are added to, never changed.
package flow
