// Package vppagent turns keyed protobuf values into the configuration of VPP, and keeps VPP equal to them.
//
// Invariant: what VPP ends up with depends on the last value of each key only, not on the way there; and if VPP already
// has it, nothing is written.
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
// A value is PENDING while something it depends on is missing, INVALID if it can never be in VPP as it is, RETRYING if VPP
// refused it. It is UNIMPLEMENTED if its model is known and no descriptor puts it into VPP: it stays wanted, and nothing more. None
// of these keeps another value from being configured.
//
// Access lists are what an interface stands on, and a half-made change of them is a hole or an outage. So the lists of an
// interface change by one message, from what they were to what they will be: see beside.go for what happens when one
// transaction changes more than one thing they stand on. What is refused leaves an interface as it was; one that has nothing
// yet is denied everything, by an access list kept for that; so is one that names a list nobody gives. Status and Snapshot
// tell which. Whether a revoked permission ends flows that exist is VPP's to say: Snapshot.Reclassify.
//
// VPP forwards nothing while its main thread is at a request. Package cost estimates for how long: an access list that many interfaces
// have is replaced beside, interface by interface, and requests are sent in groups with pauses between them (pace.go, Config.Pause). Run puts
// other transactions between two groups of interfaces (rest.go).
//
// Run compares VPP with the desired state slice by slice (Config.Recheck), between two transactions: what another program changed
// is found, repaired, and named in Committed.Drift. A recheck of an unchanged VPP writes nothing and emits nothing.
//
// Only what is ours is removed. What VPP can tag carries a tag; for the rest the agent keeps a journal of what it made,
// and adopts what it finds equal to what is wanted.
package vppagent
