// Package sctp turns ports of SCTP into tables of VPP's classifier (ADR 11).
//
// Invariant: packets never meet a table that is removed, and an interface whose lists need a filter has it before them.
package sctp
