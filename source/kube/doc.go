// Package kube turns the objects of a Kubernetes API server into events, through client-go's shared informers.
//
// Invariant: what is emitted, taken together, is what the API server said last. A change is emitted only if it means
// something to a data plane: watches that break, lists that are repeated, objects that only count their heartbeats give
// nothing. While the API server is away everything stays as it is, and the sync status says so. As long as nobody can connect to
// it, one request tries for all informers, every 4 to 8 s in the end; when it is reached all go on at once, where they were.
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
//
// Policies with types of their own are asked for where the API server serves them: policy.networking.k8s.io
// (AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy), and Calico's from projectcalico.org/v3, or from
// crd.projectcalico.org/v1 where there is no API server of Calico's. Discovery is asked again and again, so they may come and
// go. Until it has answered once, nothing is in sync: there may be policies.
//
// The rights it takes, all of them list and watch, cluster-wide: services, nodes, pods, namespaces, serviceaccounts;
// endpointslices.discovery.k8s.io; networkpolicies and servicecidrs of networking.k8s.io; whatever of policy.networking.k8s.io
// and of Calico's groups is to count. While a kind of policies is served and may not be read, nothing is in sync, unless
// Config.IgnorePolicyKinds names it: what it denies would be let through.
//
// For a fan-out server (Config.Keys) each object is also written as Calico's datastore has it. Then all Services and EndpointSlices
// are asked for, and of Calico's kinds also IPPools, IPAMBlocks, BGPConfigurations, BGPPeers, BGPFilters and CalicoNodeStatuses,
// if they are served and may be read: they are nothing but keys.
package kube
