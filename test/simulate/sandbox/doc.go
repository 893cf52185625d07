// Package sandbox turns a seed into two nodes, each with a container runtime, its requests to an agent that connects pods (plugins/cni, plugins/podnet, plugins/ipam), and
// faults of VPPs, agents, runtimes, API server, fan-out server, etcd and clocks, in one bubble of testing/synctest, and into a verdict.
//
//	runtime ─ ADD, DEL, CHECK, GC ─▶ network ─▶ agent ─┬─▶ network ─▶ simulated VPP ◀─ tunnel ─▶ VPP of the other node
//	   │ pods, endpoints                         ▲     └─▶ kernel: the values and connections that VPP's host would have
//	   └───▶ API server ─(fan-out server)────────┤
//	         etcd ─ network ─────────────────────┘
//
// Invariant: a seed draws the same requests and faults at the same times. The kernel keeps what the agent's own descriptors plan, and executes nothing.
package sandbox
