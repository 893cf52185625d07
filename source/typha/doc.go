// Package typha turns what a fan-out server says, ours or Calico's Typha, into events: the client side of the sync protocol
// (fanout/wire).
//
//	server ── wire ──▶ session: hello, decoder restarts, pongs, time limits
//	                      │ KVs, status
//	                      ▼
//	                   Client: connects again and again; compares each new snapshot with what it holds
//	                      │ wire.Batch: only what differs, deletes included
//	          ┌───────────┴───────────┐
//	          ▼                       ▼
//	   Source: keys → objects     a relay: keys as they are
//	          │ event.Update
//	          ▼
//
// Invariant: what has been handed on, taken together, is what a server said last. Nothing is handed on before a server is in
// sync; a connection that breaks takes nothing back; a server that is new to us takes back only what it does not have.
//
// Both dialects of policies' keys are understood (up to Calico v3.31, and from v3.32 on), and said to be.
//
// Of objects it delivers what a server has: WorkloadEndpoints of Kubernetes are Pods, profiles are Namespaces and
// ServiceAccounts, Calico's Nodes are Nodes with the blocks of addresses that Calico's IPAM gave them, Services and
// EndpointSlices are read as from an API server (source/convert). There are no Pods without an address and none of the host's
// network, and ServiceCIDRs only from our own servers or as far as a BGPConfiguration announces them. Rules of a NetworkPolicy
// are numbered as Calico expands them: one for each peer with each protocol.
//
// A value that is not understood is a deletion, as it is for Felix, and a change with an error that names key and reason.
package typha
