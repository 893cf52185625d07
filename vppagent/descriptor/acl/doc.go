// Package acl turns access lists, their order on interfaces, and source ranges into requests to the ACL plugin.
//
// Invariant: an interface is never open because VPP refused a request or because a list does not exist: it keeps the lists it has, or it denies
// everything.
package acl
