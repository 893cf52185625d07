// Package builtin turns the choice of a service renderer into renderers, each with its address families.
//
// It alone knows which service renderers come with the agent and how many of them run side by side.
//
// Invariant: every family belongs to exactly one of the renderers that New returns. Two renderers of one family would conflict on
// the same interfaces.
package builtin
