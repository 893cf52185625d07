// Package nat44ed turns NAT44-ED requests and packets into VPP's return codes, sessions and translations.
//
// Invariant: every answer and every translation is that of VPP 24.06 (src/plugins/nat/nat44-ed), traps included: a crash of VPP is a
// panic with a *Crash, and the engine repairs nothing. Plain values in and out, no goroutine, no I/O; one caller at a time.
//
//	ip4-unicast:  … acl-in < nat44-ed-classify < nat-pre-out2in < nat-pre-in2out < … ip4-lookup
//	                              │ both roles        │ outside         │ inside
//	                              ├──── out2in ◀──────┤                 │
//	                              └──── in2out ◀──────┼─────────────────┘
//	ip4-output:   nat-pre-in2out-output ─▶ in2out-output < acl-out < … interface-output
//
//	in2out, out2in, in2out-output:  fast path (flow table) ── no session, or an old one ──▶ slow path (mappings, pools)
//
// Input runs the nodes of an interface's ip4-unicast arc, Output those of its ip4-output arc. Nodes that only pass a packet on
// (nat-pre-*) leave no hop. The caller reassembles: a fragment comes as its datagram's header.
//
// One NAT thread is modelled (VPP without workers, or with one): no handoff, no filtering of backends by worker. Not modelled:
// TCP MSS rewriting (packets carry no options), IPFIX, syslog, HA, packets that arrive with a wrong checksum, the flow
// table's limits, and flows with address 0 taken for mappings (VPP keeps both in one table). A VRF's FIB index is its table ID here;
// the difference shows only in session limits per VRF (SetSessionLimit).
package nat44ed
