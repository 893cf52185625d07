// Package l2 turns bridge domains and cross-connects into protobuf values and
// back: the ligato v3 messages of that name. Invariant: names and numbers are
// an interface to stored data; they are added to, never changed.
package l2
