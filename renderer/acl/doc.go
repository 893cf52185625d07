// Package acl turns Felix's dataplane messages into VPP access lists: it is a dataplane driver in Felix's sense.
//
//		OnUpdate ─▶ sets, policies, profiles, endpoints ─▶ programs ─▶ segments ─▶ tables ─▶ ACL            ┐
//		SetNode  ─▶ interfaces, addresses, views ─────────────────────▶ lists ─────────────▶ InterfaceACLs  ┴▶ renderer.Sink
//
//	  - A program is what an endpoint's tiers and profiles say for one direction, as one list whose first match decides.
//	  - A segment is a run of rules of one policy with one action. Endpoints with the same policy share it.
//	  - A table is an ACL: a segment, or the part of a big one whose peers have one hash.
//	  - A list is the tables of an interface, in order.
//
// Nothing happens before Apply, and nothing at all before the first InSync.
//
// Invariant: what was handed to the sink after Apply returned false depends on the present state only, whatever the path; and
// no packet passes on the way that the states before and after both deny.
package acl
