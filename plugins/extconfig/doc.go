// Package extconfig turns what other programs ask for into values of the controller's: validated, applied, and only then kept
// in a file, so that a restart has what was acknowledged and nothing that was refused.
//
// Invariant: what a client wants is its own. It is changed by that client alone, whatever others ask for, and the file holds
// what the clients were told it holds.
package extconfig
