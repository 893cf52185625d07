// Package rulebook turns the rules of a policy into few bytes, and back.
//
// Invariant: unpacked rules equal the packed ones, but for empty lists, which become nil. Equal rulebooks are equal rules.
package rulebook
