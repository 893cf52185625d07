// Package bench turns clusters of a given size into the cost of following them: what a first sync, an unchanged resync, one
// changed endpoint, an endpoint kept in memory and a question about a packet cost, and that a restarted agent costs nothing.
// Its invariant: whatever a figure is compared with was measured in the same run, with the same messages, against the same
// kind of VPP.
//
//	        cluster(services × endpoints)
//	               │ events
//	             agent ──── requests ────▶ recorder ────▶ sim, or VPP with CONTIV_VPP
//	                                          │
//	                                         tape
//	                                        ╱    ╲
//	bare loop: the same requests, vpp.Conn.Do    null: a peer that answers from the tape and does nothing else
//
// The sim lives in the process of the agent and works for its answers, which hides the agent's own share; against the null
// peer nearly all time is that share. The benchmarks report both. The tests assert counts, never durations.
package bench
