// Package acl turns the requests and packets that VPP's ACL plugin gets into its answers and verdicts: acl.api 2.0.1 of VPP
// 24.06 to 25.10, without the API's encoding.
//
//	AddReplace, Del, SetList, AddDel ──▶ ACLs and lists ──┐ index.go: first match, by tuples of prefix lengths
//	                                                      ▼
//	packet ─▶ Check ─▶ session of its flow? ─▶ list of the interface's direction ─▶ Verdict
//	                        ▲                                  │
//	                        └──────── permit+reflect ──────────┘ session.go: both directions of one interface
//
// Invariant: a request gets VPP's retval and a packet VPP's verdict, one thread's. Interfaces are numbers; whether one exists
// is the caller's to ask.
//
// BUGS. VPP clears the sessions of an interface a moment after it has answered; here it is at once. Of the packets outside of an
// IPv6 prefix whose length is no multiple of eight, VPP before 25.06 with hash lookup matches some, depending on the order in which
// tuple merge met the rules (Config.PrefixBug); here none. MAC-IP ACLs are kept and dumped, but packets have no MAC
// addresses to judge. There are no fragments and no IPv6 extension headers. Every packet has at least eight bytes behind its IP
// header; VPP finds no rule with a protocol for shorter ones.
package acl
