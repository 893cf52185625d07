// Package kube turns the objects of a Kubernetes API server into events, through client-go's shared informers.
//
// Invariant: what is emitted, taken together, is what the API server said last. A change is emitted only if it means
// something to a data plane: watches that break, lists that are repeated, objects that only count their heartbeats give
// nothing. While the API server is away everything stays as it is, and the sync status says so.
//
//	API server ─list/watch─▶ reflector ─transform─▶ informer ─▶ handler ─┐
//	                            │       (k8s object → item:               ├─▶ loop: coalesce, compare ─▶ emit
//	                            └ health of every request ────────────────┘   a model value or an error)
//
// The transform replaces each object by its converted form before it is stored, so the informers' caches hold model
// values and nothing else: no managed fields, no pod specs, no node images.
//
// What is asked for is what kube-proxy v1.36 asks for: Services other than headless ones, EndpointSlices of the same, plus
// Nodes, Pods (of all nodes: policies select peers anywhere), Namespaces, ServiceAccounts, NetworkPolicies, and ServiceCIDRs
// where they are served and may be read.
package kube
