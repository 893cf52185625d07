// Package vppagent turns keyed protobuf values into the configuration of VPP, and keeps VPP equal to them.
//
// Invariant: the actual state depends on the last value of each key only, not on the order or number of transactions. If VPP
// already equals the desired state, the agent writes nothing.
//
//	              desired (keys and messages of transactions)        actual (dumps, then acknowledged writes)
//	                     │ Compile: validate once                          ▲ Retrieve           ▲
//	                     │ EXPAND: parts and derived values (package expand)                    │
//	                     ▼                                                 │                    │
//	    ┌──────────────────────────── graph ─────────────────────────────────────┐            │
//	    │ value: want · have · dependencies · derived parts · status              │            │
//	    └───────┬─────────────────────────────────────────────────────────────────┘            │
//	            │ PLAN: which values must change, and in which order                            │
//	            ▼                                                                                │
//	levels:  early removals ─▶ puts, what others need first ─▶ removals, what others need last  │
//	         (what is in the way)                              (nobody waits for them)          │
//	            │ EXECUTE: all requests of a level in one pipelined batch ──▶ vpp.Conn ──▶ VPP ─┘
//	            │          (thousands of creations in bunches: VPP is at work while the next are prepared; and a first
//	            │          resync in portions, see portions.go: VPP is at work while the next is rendered and planned)
//	            ▼
//	        OBSERVE: status per value · retries with back-off · history · snapshot
//
// A value is PENDING while a dependency is missing, INVALID if VPP can never have it as it is, and RETRYING if VPP refused it. A
// value is UNIMPLEMENTED if its model is known and no descriptor puts it into VPP: it stays in the desired state without effect.
// None of these states keeps another value from being configured.
//
// The lists of an interface stand on access lists, and a half-made change of them is a hole or an outage. So one message changes
// the lists of an interface from before to after; beside.go handles a transaction that changes more than one object they stand
// on. If VPP refuses a change, the interface keeps its lists. An interface that has no lists yet, or that names a list which does
// not exist, gets an access list that denies everything. Status and Snapshot report both cases. VPP's settings decide whether a
// revoked permission ends existing flows: see Snapshot.Reclassify.
//
// VPP forwards nothing while its main thread serves a request. Package cost estimates for how long. So an access list that many interfaces
// have is replaced beside, interface by interface, and the agent sends requests in groups with pauses between them (pace.go, Config.Pause).
// Run commits other transactions between two groups of interfaces (rest.go).
//
// Run compares VPP with the desired state slice by slice (Config.Recheck), between two transactions. It finds and repairs the
// changes of other programs, and names them in Committed.Drift. A recheck of an unchanged VPP writes nothing and emits nothing.
//
// The agent removes only its own objects. Objects that VPP can tag carry a tag. The journal records the other objects that the
// agent made, and the agent adopts objects that equal the desired state.
package vppagent
