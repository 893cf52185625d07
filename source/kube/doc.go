// Package kube turns the objects of a Kubernetes API server into events, through client-go's shared informers.
//
// Invariant: all emitted changes taken together equal the API server's latest state. The source emits a change only if it
// matters to a data plane. Broken watches, repeated lists and objects whose heartbeats alone changed cause no event. While
// the API server is unreachable, the state stays as it is and the sync status carries the error. During such an outage one
// request at a time tries to connect on behalf of all informers, in the end every 4 to 8 s. Once it connects, all informers
// continue from where they were.
//
//	API server ─list/watch─▶ reflector ─transform─▶ informer ─▶ handler ─┐
//	                            │       (k8s object → item:               ├─▶ loop: coalesce, compare ─▶ emit
//	                            └ health of every request ────────────────┘   a model value or an error)
//
// The transform converts each object before the informer stores it. The informers' caches therefore hold model values only:
// no managed fields, no pod specs, no node images.
//
// The source lists and watches the same objects as kube-proxy v1.36: Services except headless ones, and their
// EndpointSlices. It also reads Nodes, Pods (of all nodes, because policies select peers anywhere), Namespaces,
// ServiceAccounts, NetworkPolicies, and ServiceCIDRs where the API server serves them and permits reading.
//
// Policy kinds outside Kubernetes' core are read where the API server serves them: AdminNetworkPolicy,
// BaselineAdminNetworkPolicy and ClusterNetworkPolicy of policy.networking.k8s.io, and Calico's kinds. Calico's kinds are
// read from projectcalico.org/v3, or from crd.projectcalico.org/v1 where Calico's API server does not run. Discovery is
// repeated, so these kinds may appear and disappear. The source is not in sync before discovery has succeeded once, because
// policies may exist.
//
// The source needs the rights to list and watch, cluster-wide: services, nodes, pods, namespaces, serviceaccounts;
// endpointslices.discovery.k8s.io; networkpolicies and servicecidrs of networking.k8s.io; and every policy kind of
// policy.networking.k8s.io and of Calico's groups that shall be enforced. If the API server serves a policy kind that the
// source may not read, the source is not in sync, unless Config.IgnorePolicyKinds names the kind. Otherwise traffic which
// that kind denies would be allowed.
//
// For a fan-out server (Config.Keys) the source also writes each object as Calico's datastore stores it. It then reads all
// Services and EndpointSlices, and Calico's IPPools, IPAMBlocks, BGPConfigurations, BGPPeers, BGPFilters and
// CalicoNodeStatuses if they are served and readable. These Calico kinds become datastore keys only.
package kube
