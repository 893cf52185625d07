// Package cnat turns requests to VPP's cnat plugin and packets into VPP's return codes, sessions and translations.
//
// Invariant: every answer and every translation is VPP 24.06's (cnat.api 0.3.0; the same in 25.10 but for Config.EchoInErrors),
// mistakes included: what kills VPP panics with a *Crash, and nothing is repaired on the way. Plain values in and out, no
// goroutine, no I/O; one caller at a time.
//
//	ip4-unicast:  cnat-input-ip4 < acl-in < … < cnat-snat-ip4 < … ip4-lookup ─▶ an address of ours: ip4-cnat-tx
//	              VIP → backend                client → snat address             VIP → backend, reply → VIP
//	ip4-output:   acl-out < cnat-output-ip4 < … interface-output
//	                        backend → VIP, client → snat address                 and the same for ip6
//
//	each node:    a session of this place? ── yes ──▶ translate as it says
//	                    │ no
//	                    ▼
//	              a translation, a policy? ── yes ──▶ a session, and one for the way back at the node it will pass
//
// A session is of one place: one made by cnat-input has its way back at cnat-output, one of cnat-output at cnat-input, one of
// ip4-cnat-tx at ip4-cnat-tx, which is why that one makes the client's address one of ours, too.
//
// Not modelled: packets with the families of VIP and backend mixed; IPv6 addresses that VPP takes for IPv4 ones because they end in
// twelve zero bytes; what VPP from 25.02 on does with an ICMP error about ICMP that is no echo, which it looks up by a key that it did not
// write (cnat_session_make_key; the packet is left alone here); a VIP given by an interface without address while VPP has a client of that number; fragments; the
// memory of VPP's tables (session-db-memory, 1 MB). A session of ip4-cnat-tx holds the number of VPP's load-balance object of
// its backend. When the backend had no route of its own, that number is given to somebody else once the last translation lets
// go of it; here the packet is dropped, unless the backend has a route again.
package cnat
