// Package cidr turns prefixes into networks that need little memory, and back.
//
// Invariant: equal networks are equal values: masked, and without IPv4-mapped addresses. A value has no pointer, so that the garbage collector need
// not scan tables of them.
package cidr
