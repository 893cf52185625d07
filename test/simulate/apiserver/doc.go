// Package apiserver turns requests of Kubernetes' clients into answers about objects in memory: discovery, lists and watches with versions, bookmarks and
// compaction, and faults of all of them.
//
//	objects ─ Set ─▶ store, log of changes ─▶ list ──▶ an answer        ┐
//	                        │                          ▲ faults         ├ http.RoundTripper ◀─ client-go
//	                        └─────────────────▶ watch ─▶ a stream       ┘
//
// Invariant: without a fault, a client that lists and then watches from the list's version has the store's objects. All waiting is durable for
// testing/synctest: no goroutine is left behind, and no network is used.
package apiserver
