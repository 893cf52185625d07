// Package configurator turns configuration as one message into values and back: ligato's API restated. Invariant: names and
// numbers are an interface to other programs; they are added to, never changed.
package configurator
