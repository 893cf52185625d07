// Package ipsec turns IPsec's policies, associations and names of algorithms into
// protobuf values and back: the ligato v3 messages and enums of that name.
// Invariant: names and numbers are an interface to stored data; they are added
// to, never changed.
package ipsec
