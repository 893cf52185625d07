// Package fanout turns one stream of changed keys into as many as there are clients: the server side of the sync protocol
// that Calico's Typha speaks, so that an API server feels one watcher and not one per node.
//
//	sources ── wire.Batch ──▶ cache, one for each set of keys
//	                           │ compares, encodes each KV once
//	                           ▼
//	               table: sorted segments,        crumb ─▶ crumb ─▶ crumb ─▶ …    a forward-linked list of changes:
//	               copied when written            ▲          ▲        ▲            encoded and compressed once, each,
//	                           │                  slow       fast     idle         by the first who needs it
//	                           ▼                 client     client   client
//	               snapshot: compressed segments,
//	               shared by all who come
//
// A client is told the snapshot as of some crumb, and then every later crumb. It holds nothing but the crumb it has
// reached: crumbs behind the slowest client are garbage, and a client that is too far behind is let go.
//
// Invariant: what a client has been told, from its snapshot to any crumb, is exactly what the source had told by then. No
// client waits for another, the source waits for none, and memory is bounded by the keys, the number of connections and
// the limits for those that fall behind.
package fanout
