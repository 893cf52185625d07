// Package acl turns Felix's dataplane messages into VPP access lists: it is a dataplane driver in Felix's sense.
//
//		OnUpdate ─▶ sets, policies, profiles, endpoints ─▶ programs ─▶ segments ─▶ tables ─▶ ACL            ┐
//		            match                policy    endpoint            table                                │
//		SetNode  ─▶ interfaces, addresses, views ─────────────────────▶ lists ─────────────▶ InterfaceACLs  ┴▶ renderer.Sink
//
//	  - A program has the rules of an endpoint's tiers and profiles for one direction, as one list whose first match decides.
//	  - A segment is a run of rules of one policy with one action. Endpoints with the same policy share it.
//	  - A table is an ACL: a segment, or the part of a big one whose peers have one hash.
//	  - A list is the tables of an interface, in order.
//
// Four packages place tables that are no part of a pod's own programs: egress and outer where packets to Services leave VPP, closed at the inputs of
// senders, host at the interfaces of the node. Package source puts the source checks in front. Renderer puts all into lists, in order.
//
// Only Apply writes to the sink, and only after the first InSync.
//
// Invariant: the output in the sink after Apply returned false depends on the present state only, not on earlier states. During a
// change no packet passes that the states before and after both deny.
package acl
