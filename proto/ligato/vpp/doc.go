// Package vpp turns values of VPP into one message and back: part of ligato's configuration, restated. Invariant: names and
// numbers are an interface to other programs; they are added to, never changed.
package vpp
