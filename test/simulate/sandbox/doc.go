// Package sandbox turns a seed into a container runtime, its requests to an agent that connects pods (plugins/cni, plugins/podnet, plugins/ipam), and faults of
// VPP, agent, runtime, API server, etcd and clock, in one bubble of testing/synctest, and into a verdict.
//
//	runtime ─ ADD, DEL, CHECK, GC ─▶ network ─▶ agent ─┬─▶ network ─▶ simulated VPP
//	   │ pods, endpoints                         ▲     └─▶ kernel: the values and connections that VPP's host would have
//	   └───▶ API server ─────────────────────────┤
//	         etcd ─ network ─────────────────────┘
//
// Invariant: a seed draws the same requests and faults at the same times. The kernel keeps what the agent's own descriptors plan, and executes nothing.
package sandbox
