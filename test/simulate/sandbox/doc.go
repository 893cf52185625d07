// Package sandbox turns a seed into a container runtime, its requests to an agent that connects pods (plugins/cni, plugins/podnet, plugins/ipam), and faults of
// VPP, agent and runtime, in one bubble of testing/synctest, and into a verdict.
//
//	runtime ─ ADD, DEL, CHECK, GC ─▶ network ─▶ agent ─┬─▶ network ─▶ simulated VPP
//	                                                   └─▶ kernel: the values that VPP's host would have
//
// Invariant: a seed draws the same requests and faults at the same times. The kernel keeps what the agent's own descriptors plan, and executes nothing.
package sandbox
