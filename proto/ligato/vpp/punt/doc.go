// Package punt turns what VPP hands to the host into protobuf values and
// back: the ligato v3 messages of that name. Invariant: names and numbers are
// an interface to stored data; they are added to, never changed.
package punt
