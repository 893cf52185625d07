// Package typha turns the keys that a fan-out server sends into events. It is the client side of the sync protocol
// (calico/wire), for this program's fan-out server and Calico's Typha.
//
//	server ── wire ──▶ session: hello, decoder restarts, pongs, time limits
//	                      │ KVs, status
//	                      ▼
//	                   Client: reconnects; compares each new snapshot with the keys it holds
//	                      │ wire.Batch: only what differs, deletes included
//	          ┌───────────┴───────────┐
//	          ▼                       ▼
//	   Source: keys → objects     a relay: keys as they are
//	          │ event.Update
//	          ▼
//
// Invariant: all keys passed on, taken together, equal what the last server in sync sent. The client passes on nothing
// before a server is in sync. A broken connection withdraws nothing. A new server's snapshot withdraws only the keys it
// lacks.
//
// The client understands both dialects of policy keys (up to Calico v3.31, and from v3.32 on), and announces that.
//
// The source delivers the objects that a server's keys describe. Kubernetes' WorkloadEndpoints are Pods. Profiles are
// Namespaces and ServiceAccounts. Calico's Nodes are Nodes, with the address blocks that Calico's IPAM assigned to them.
// Services and EndpointSlices are read as from an API server (source/convert). Pods without an address or on the host
// network are missing. ServiceCIDRs come from this program's servers, or from the ranges a BGPConfiguration announces.
// Rules of a NetworkPolicy are numbered as Calico expands them: one for each peer with each protocol.
//
// A value that does not parse counts as a deletion, as in Felix. The change carries an error that names key and reason.
package typha
