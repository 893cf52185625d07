// Package ipsec turns the names of IPsec algorithms into numbers and back: the
// ligato v3 enums the interface messages refer to. Invariant: names and numbers
// are an interface to stored data; they are added to, never changed.
package ipsec
