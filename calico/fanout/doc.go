// Package fanout turns one stream of changed keys into a stream for each client: the server side of the sync protocol of
// Calico's Typha. An API server then has one watcher instead of one per node.
//
//	sources ── wire.Batch ──▶ cache, one for each set of keys
//	                           │ compares, encodes each KV once
//	                           ▼
//	               table: sorted segments,        crumb ─▶ crumb ─▶ crumb ─▶ …    a forward-linked list of changes:
//	               copied when written            ▲          ▲        ▲            encoded and compressed once, each,
//	                           │                  slow       fast     idle         by the first client that needs it
//	                           ▼                 client     client   client
//	               snapshot: compressed segments,
//	               shared by all new clients
//
// A client receives the snapshot as of some crumb, and then every later crumb. It holds only the crumb it has reached.
// Crumbs behind the slowest client are garbage, and the server disconnects a client that is too far behind.
//
// Invariant: the keys that a client received, from its snapshot to any crumb, equal what the source had sent by then. No
// client waits for another, and the source waits for none. Memory is bounded by the keys, the number of connections, and
// the limits for clients that are behind.
package fanout
