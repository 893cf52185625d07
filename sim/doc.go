// Package sim turns binary-API requests and packets into what a VPP 24.06 answers and forwards: a VPP in Go, for tests, for
// trying out and for explaining.
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
//	            ├─▶ ip4-cnat-tx, for addresses of the cnat plugin's: on by the route, or to the backend
//	            ├─▶ ip4-rewrite ─▶ [ip4-output features of the interface] ─▶ interface-tx ─▶ Output
//	            ├─▶ ip4-local ─▶ the node's own stack (Config.PuntLocal) or what a bare VPP answers
//	            └─▶ ip4-null, TTL: ip4-icmp-error ─▶ ip4-lookup again, as VPP does
//
//	features, input:  cnat-input ─▶ acl-plugin-in ─▶ nat44-ed ─▶ cnat-snat ─▶ inacl    sim/cnat: translations of both families
//	         output:  nat44-ed ─▶ acl-plugin-out ─▶ cnat-output ─▶ outacl              sim/classify: inacl and outacl
//	         and the same for ip6, without nat44-ed
//
// Invariant: a request is answered with the retval, and a packet meets the fate, that VPP 24.06 (one thread, plugins
// nat44-ed, acl, cnat, af_packet, memif) gives them; what kills VPP makes Crashed non-nil, cuts every connection and stays so until
// Restart. Where that is knowingly not so, BUGS below says it.
//
// BUGS. One worker at most is modelled (Config.Workers only changes what nat_worker_dump and show_threads say). ICMP errors are
// not throttled: the virtual clock stands still between packets, so VPP's window of one error per pair of addresses would
// hide answers. No ICMP error is about an ICMP error; VPP makes them. A route through an attached interface always resolves its next hop: there is no ARP that fails. IPv6
// neighbour discovery that is sent to a multicast group is answered, other multicast is dropped. No fragments, no MPLS. A route
// through an interface of another table does not import what is connected there. An entry of the FIB
// that VPP lost (trapLostEntry) ends the simulated VPP also where in VPP another prefix took its place by then. There is no stats segment: ACLHits has the
// counters of ACL rules. feature_enable_disable knows the nodes of cnat only. Policing of truncated messages is VPP's: dropped without an answer.
package sim
