// Package generic turns values of any model into messages of ligato's manager and back: its API restated. Invariant: names and
// numbers are an interface to other programs; they are added to, never changed.
package generic
