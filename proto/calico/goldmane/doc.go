// Package goldmane has the messages between an agent and Calico's Goldmane, as Goldmane v3.31 reads them.
//
// Invariant: numbers of fields and values equal those of the original.
package goldmane
