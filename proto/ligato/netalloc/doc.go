// Package netalloc turns the part of ligato's configuration that hands out addresses into one message, which must be empty.
// Invariant: its name is an interface to other programs and never changes.
package netalloc
