// Package describe turns a message of VPP's binary API into one line of text, for plans, tests and traces.
//
// Invariant: equal messages give equal lines. A field with its zero value is left out, and interfaces appear by name where it is known.
package describe
