// Package policy turns Kubernetes and Calico objects and the first packet of a connection into the verdict the
// specifications of network policies promise: a literal, slow reading, written without looking at how the agent does it. And
// it makes random clusters to ask about.
//
//	NewWorld(seed) ─ Step, Step, … ─▶ Objects ─ Read ─▶ Cluster ─ Judge(flow) ─▶ allowed or not, and why
//	                  └─ Flows: all pairs of pods, nodes, addresses outside × ports × protocols × families
//
// Invariant: it shares no code with the agent, selectors included; the objects are what an API server shows.
//
// Where the documents leave something open, or contradict each other, this is the law here:
//
// Who is protected. Policies apply to pods with an address of their own that have not ended. A pod of the host network is
// its node: no selector finds it, its node's addresses do (an ipBlock, networks, nodes). The addresses of a pod that has
// succeeded or failed mean nothing any more, and may be another's.
//
// Which packet is judged. The one behind the service: real backend, target port. The client is who the packet says it is: if
// a service hides it behind an address of the node or of the translation, that address is the client. A connection needs the
// leave of the egress of its source and of the ingress of its destination. Answers, and ICMP errors (types 3, 11, 12; of
// ICMPv6 1 to 4) always pass; so does neighbour discovery
// (ICMPv6 135 and 136; a pod may also ask for routers, and hear of them, 133 and 134).
//
// Egress is judged before a client is hidden: whoever dials an address that hides him needs leave for everything behind it.
//
// What no policy stops. A pod to its own address. A node to its own pods (from any of the node's addresses; probes); another
// node's address is like one from outside. (With nat44 the node's word counts for TCP, UDP and ICMP only: it gives its address to
// the SCTP of anybody.) A pod that reaches itself by way of a service: it has the address that stands in for hidden clients
// then. Where such clients reach the same port they cannot be told apart, and both are judged by that address. (The
// documents of ClusterNetworkPolicy say since July 2026 that such a pod is judged; it is not here.) From a pod to its own
// node there is no such exception: egress is judged.
//
// Tiers. Policies of Calico's tiers, and of the built-in ones in their places: adminnetworkpolicy and kube-admin (order
// 1000: an AdminNetworkPolicy comes before a ClusterNetworkPolicy of tier Admin, and its Pass hands over to it), default
// (1,000,000: NetworkPolicy and Calico's), baselineadminnetworkpolicy and kube-baseline (10,000,000). Inside: by order or priority.
// Equal ones: nobody promises anything, and no random cluster has them. Pass leaves the tier; behind the last one everything is
// allowed. A tier some policy of which governs the direction ends with Deny, unless it is one whose default action is Pass; the
// administrator's four pass.
//
// NetworkPolicy. Each direction on its own: one that only governs egress decides nothing about ingress, and the baseline tiers
// are asked there. (Another reading of "v1.NetworkPolicy always makes a final decision for selected pods" would skip them.)
// A rule without ports allows every protocol, ICMP too; one with ports TCP, UDP and SCTP only, and a port without protocol is
// TCP. A named port is resolved at the destination, by name and protocol, whatever the peer. Not selecting by a label differs
// from selecting others: NotIn holds where there is no label. An ipBlock covers pods, too.
//
// Cluster-wide kinds. Named ports mean any protocol. A rule with a peer that is not understood, or not supported (domain
// names), fails closed as a whole: one that allows matches nothing, any other denies everything.
//
// Calico. What is negated holds for the other address family: notNets of IPv4 are no match for IPv6. (Felix drops such a rule
// for IPv6.) A negated selector beside positive ones speaks of the same endpoints; alone it excludes addresses. In a policy of a
// namespace any selector of a rule, negated or not, means that namespace unless it says which. A match of a Service means all
// its endpoints, ready or not. Log goes on.
//
// Host endpoints. They stand at their node's uplink, and judge what comes from outside or goes there: by all policies that
// select them if it is from or to the node itself, and then by their profiles, and deny what nothing allows; what the node forwards by
// policies with applyOnForward only, and allow it if there is none in that direction or none decides. From and to the node
// itself the failsafe ports are always open. Pods of other nodes are not outside. Other nodes themselves are for what leaves; what
// comes from them comes by the overlay. With nat44 a service is judged where it comes in, as it is dialled. Whether selecting by namespace or service account in the negative can select them, nobody
// says, and no random cluster does.
//
// Namespaces have the label kubernetes.io/metadata.name even where a manifest forgets it; a namespace or a service account
// without an object is one of that name without labels.
package policy
