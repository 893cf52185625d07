// Package acl turns the ordered lists of ACLs of an interface into protobuf
// values and back; ligato has no message for them. Invariant: names and numbers
// are an interface to stored data; they are added to, never changed.
package acl
