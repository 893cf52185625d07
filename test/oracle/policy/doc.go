// Package policy turns Kubernetes and Calico objects and the first packet of a connection into the verdict that the
// specifications of network policies promise. It is a literal, slow reading, written without a look at the agent's code. Package
// generate makes random clusters for tests.
//
//	Objects ─ Read ─▶ Cluster ─ Judge(flow) ─▶ allowed or not, and why
//
// Invariant: it shares no code with the agent, selectors included; the objects are as an API server returns them.
//
// The documents are silent or contradict each other in some cases. This package decides them as follows.
//
// Protected endpoints. Policies apply to running pods with a separate address. A pod of the host network is its node: no
// selector selects it, but its node's addresses match (an ipBlock, networks, nodes). The addresses of a pod that has
// succeeded or failed have no meaning, and may be another's.
//
// The evaluated packet. It is the packet behind the Service: real backend, target port. The client is the packet's source
// address: if a Service replaces it by an address of the node or of the translation, that address is the client. A
// connection needs both the egress of its source and the ingress of its destination. Answers, and ICMP errors (types 3, 11,
// 12; of ICMPv6 1 to 4) always pass; so does neighbour discovery (ICMPv6 135 and 136; a pod may also send and receive router
// discovery, 133 and 134).
//
// Egress is evaluated before a client's address is replaced: a client that dials an address that hides it must be allowed to
// reach every backend of that address.
//
// Packets that no policy stops. A pod to its own address. A node to its own pods (from any of the node's addresses; probes);
// another node's address is like one from outside. (With nat44 this holds for TCP, UDP and ICMP only: nat44 gives the node's
// address to all senders of SCTP, and lists deny SCTP to it.) A pod that reaches itself through a Service: it then has the address that replaces hidden
// clients. If such clients reach the same port they cannot be distinguished, and both are evaluated by that address. (Since
// July 2026 the documents of ClusterNetworkPolicy say that such a pod is evaluated; here it is not.) From a pod to its own
// node there is no such exception: egress is evaluated.
//
// Tiers. Policies of Calico's tiers, and of the built-in ones in their places: adminnetworkpolicy and kube-admin (order
// 1000: an AdminNetworkPolicy comes before a ClusterNetworkPolicy of tier Admin, and its Pass continues there), default
// (1,000,000: NetworkPolicy and Calico's), baselineadminnetworkpolicy and kube-baseline (10,000,000). Inside a tier: by
// order or priority. The order of equal ones is undefined, and no random cluster has them. Pass continues with the next
// tier; after the last one everything is allowed. A tier with a policy for the direction ends with Deny, unless its default
// action is Pass; the administrator's four pass.
//
// NetworkPolicy. Each direction is separate: a policy that only governs egress decides nothing about ingress, and the
// baseline tiers are evaluated there. (Another reading of "v1.NetworkPolicy always makes a final decision for selected pods"
// would skip them.) A rule without ports allows every protocol, also ICMP; one with ports TCP, UDP and SCTP only, and a port
// without protocol is TCP. A named port is resolved at the destination, by name and protocol, whatever the peer. NotIn holds
// without the label. An ipBlock covers pods, too.
//
// Cluster-wide kinds. Named ports mean any protocol. A rule with an unknown or unsupported peer (domain names) fails closed
// as a whole: an allow matches nothing, any other action denies everything.
//
// Calico. A negation holds for the other address family: notNets of IPv4 do not match IPv6. (Felix drops such a rule for
// IPv6.) A negated selector beside positive ones selects among the same endpoints; alone it excludes addresses. In a policy
// of a namespace any selector of a rule, negated or not, means that namespace unless the rule names one. A match of a
// Service means all its endpoints, ready or not. Log continues with the next rule.
//
// Host endpoints. They are at their node's uplink, and evaluate packets from and to the outside. For packets from or to the
// node itself: all policies that select them, then their profiles; the rest is denied. For forwarded packets: policies with
// applyOnForward only; allowed if there is none in that direction or none decides. From and to the node itself the failsafe
// ports are always open. Pods of other nodes are not outside. Other nodes themselves are outside for packets that leave;
// their own packets arrive by the overlay. With nat44 a Service is evaluated at its input, as it is dialled. The documents
// do not say whether a negated selector of namespaces or service accounts can select host endpoints, and no random cluster
// has one.
//
// Namespaces have the label kubernetes.io/metadata.name even if a manifest omits it; a namespace or a service account
// without an object is one of that name without labels.
package policy
