// Package sim turns binary-API requests and packets into the replies and forwarding of a VPP 24.06. It is a VPP in Go, for tests,
// demonstrations and explanations.
//
//	client ── unix socket or Dial ──▶ server.go   framing, handshake, message table (ids differ after each Restart)
//	                                     │ FIFO per connection, replies coalesced
//	                                     ▼
//	                                  api.go      one handler per message, VPP's return codes
//	      ┌──────────────┬───────────────┼──────────────────┬───────────────────┬──────────────┐
//	      ▼              ▼               ▼                  ▼                   ▼              ▼
//	api_interface.go  api_create.go   api_ip.go          api_nat44.go       api_acl.go   api_system.go
//	      │              │               │                  │                   │
//	      ▼              ▼               ▼                  ▼                   ▼
//	  interface.go: interfaces     fib.go: tables   sim/nat44ed: NAT44-ED   sim/acl: ACLs
//	      │                              │                  │                   │
//	      └────────── forward.go: Send ──┴───── arc.go ─────┴───────────────────┘
//
//	packet ─▶ ethernet-input ─▶ ip4-input ─▶ [ip4-unicast features of the interface] ─▶ ip4-lookup ─┐
//	            ┌────────────────────────────────────────────────────────────────────────────────┘
//	            ├─▶ ip4-cnat-tx, for addresses of the cnat plugin: on by the route, or to the backend
//	            ├─▶ ip4-rewrite ─▶ [ip4-output features of the interface] ─▶ interface-tx ─▶ Output
//	            ├─▶ ip4-local ─▶ the node's network stack (Config.PuntLocal) or the answer of a bare VPP
//	            └─▶ ip4-null, TTL: ip4-icmp-error ─▶ ip4-lookup again, as VPP does
//
//	features, input:  cnat-input ─▶ acl-plugin-in ─▶ nat44-ed ─▶ cnat-snat ─▶ inacl    sim/cnat: translations of both families
//	         output:  nat44-ed ─▶ acl-plugin-out ─▶ cnat-output ─▶ outacl              sim/classify: inacl and outacl
//	         and the same for ip6, without nat44-ed
//
// Invariant: a request gets the retval, and a packet the fate, that VPP 24.06 gives them (one thread, plugins nat44-ed, acl, cnat,
// af_packet, memif). If a request or packet would crash VPP, Crashed becomes non-nil, every connection is cut, and this lasts until
// Restart. The known exceptions are under BUGS.
//
// BUGS. One worker at most is modelled (Config.Workers only changes the replies of nat_worker_dump and show_threads). ICMP errors are not throttled: the
// virtual clock stands still between packets, so VPP's window of one error per pair of addresses would hide answers. The sim sends no ICMP error about
// an ICMP error; VPP does. A route through an attached interface always resolves its next hop: no ARP fails (but of
// packets with bytes: Config.Wire). IPv6 neighbour discovery to a multicast group is answered, other multicast is dropped. No MPLS. A route through an
// interface of another table does not import the connected routes of that table. A link-local table of VPP takes a place among the
// IPv6 tables, which can change their order in a dump; the sim has no link-local tables. An entry of the FIB that VPP lost (trapLostEntry) also crashes the
// sim in cases where another prefix has since taken its memory in VPP. The sim has no stats segment: ACLHits has the counters of ACL rules.
// feature_enable_disable supports the nodes of cnat only. Truncated messages are handled as in VPP: dropped without an answer. Of the
// datagrams in fragments for VPP itself only echo requests of IPv4 are answered: fragments have no checksum of the whole, which VPP verifies.
package sim
