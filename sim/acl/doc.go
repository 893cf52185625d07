// Package acl turns the requests and packets for VPP's ACL plugin into its replies and verdicts: acl.api 2.0.1 of VPP 24.06 to
// 25.10, without the API's encoding.
//
//	AddReplace, Del, SetList, AddDel ──▶ ACLs and lists ──┐ index.go: first match, by tuples of prefix lengths
//	                                                      ▼
//	packet ─▶ Check ─▶ session of its flow? ─▶ list of the interface's direction ─▶ Verdict
//	                        ▲                                  │
//	                        └──────── permit+reflect ──────────┘ session.go: both directions of one interface
//
// Invariant: a request gets VPP's retval and a packet VPP's verdict, for one thread. Interfaces are numbers; the caller checks that
// they exist.
//
// BUGS. VPP clears the sessions of an interface a moment after its reply; here it happens at once. VPP before 25.06 with hash lookup
// matches some packets outside of an IPv6 prefix whose length is no multiple of eight, depending on the order in which tuple merge
// met the rules (Config.PrefixBug); here no such packet matches. MAC-IP ACLs are stored and dumped, but packets have no MAC
// addresses to evaluate. IPv6 extension headers other than the fragment header are not modelled. Every packet has at least eight bytes
// behind its IP header; VPP finds no rule with a protocol for shorter ones.
package acl
