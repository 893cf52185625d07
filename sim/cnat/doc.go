// Package cnat turns requests to VPP's cnat plugin and packets into VPP's return codes, sessions and translations.
//
// Invariant: every answer and every translation is that of VPP 24.06 (cnat.api 0.3.0; the same in 25.10 except for
// Config.EchoInErrors; of 26.06 only Config.Anew is modelled), bugs included: a crash of VPP is a panic with a *Crash, and the engine repairs nothing. Plain values in and
// out, no goroutine, no I/O; one caller at a time.
//
//	ip4-unicast:  cnat-input-ip4 < acl-in < … < cnat-snat-ip4 < … ip4-lookup ─▶ an address of ours: ip4-cnat-tx
//	              VIP → backend                client → snat address             VIP → backend, reply → VIP
//	ip4-output:   acl-out < cnat-output-ip4 < … interface-output
//	                        backend → VIP, client → snat address                 and the same for ip6
//
//	each node:    a session of this place? ── yes ──▶ translate by it
//	                    │ no
//	                    ▼
//	              a translation, a policy? ── yes ──▶ a session, and one for the reverse direction at the node it will pass
//
// A session belongs to one place. One made by cnat-input has its reverse session at cnat-output, one of cnat-output at cnat-input,
// one of ip4-cnat-tx at ip4-cnat-tx. That is why ip4-cnat-tx also makes the client's address one of the plugin.
//
// Not modelled: the API of VPP 26.06, whose source policy begins and ends with an address; that VPP 26.06 also remembers flows that it did not translate, so that a later translation or policy has no effect on them; packets with the families of VIP and backend mixed; IPv6 addresses that VPP takes for IPv4 ones because they end in
// twelve zero bytes; the behaviour of VPP from 25.02 on for an ICMP error about ICMP that is no echo, which it looks up by a key
// that it did not write (cnat_session_make_key; here the packet is not translated); a VIP given by an interface without address
// while VPP has a client of that number; an IPv4 fragment whose data begins like an ICMP error; the memory of VPP's tables (session-db-memory, 1 MB). A session of ip4-cnat-tx
// holds the number of VPP's load-balance object of its backend. If the backend had no separate route, VPP may reuse that number
// after the last translation has released it; here the packet is dropped, unless the backend has a route again.
package cnat
