// Package iptables turns chains of iptables into protobuf values and
// back: the ligato v3 messages of that name. Invariant: names and numbers are
// an interface to stored data; they are added to, never changed.
package iptables
