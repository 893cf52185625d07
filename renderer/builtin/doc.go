// Package builtin turns the choice of a service renderer into renderers, each with the address families that are its own.
//
// It alone knows which service renderers come with the agent and how many of them run side by side.
//
// Invariant: every family belongs to exactly one of the renderers that New returns. Two renderers of one family would meet on the
// same interfaces.
package builtin
