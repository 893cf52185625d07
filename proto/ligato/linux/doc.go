// Package linux turns values of the host into one message and back: part of ligato's configuration, restated. Invariant: names and
// numbers are an interface to other programs; they are added to, never changed.
package linux
