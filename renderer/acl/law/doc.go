// Package law turns the rules of policies into rules that do or do not make sessions.
//
// Invariant: whether a permitted packet makes a session depends on the packet and the pod alone.
package law
