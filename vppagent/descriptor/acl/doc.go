// Package acl turns access lists, their order on interfaces, source ranges and ports of SCTP into requests to the ACL plugin and the
// classifier.
//
// Invariant: an interface is never open because VPP refused a request or because a list does not exist: it keeps the lists it has, or it denies
// everything.
package acl
