package model

import "net/netip"

// Labels that endpoints get from their place, and prefixes of the labels they inherit (Calico v3.31,
// projectcalico/api).
const (
	LabelNamespace       = "projectcalico.org/namespace"      // on pods and namespaced network sets; host endpoints lack it
	LabelOrchestrator    = "projectcalico.org/orchestrator"   // on pods: OrchestratorKubernetes
	LabelServiceAccount  = "projectcalico.org/serviceaccount" // on pods: the service account's name
	LabelName            = "projectcalico.org/name"           // after a prefix below: the name of the namespace or account
	PrefixNamespace      = "pcns."                            // before a namespace's labels, in its profile
	PrefixServiceAccount = "pcsa."                            // before a service account's labels, in its profile

	OrchestratorKubernetes = "k8s"
)

// Rules can name Nodes as peers (AdminNetworkPolicy, ClusterNetworkPolicy: nodes). Such rules select network sets, one
// for each Node: NodeSet makes it, and the caller adds it to the calculation graph. Its only labels are LabelNode and
// the Node's own under PrefixNode, so a selector that requires any other label does not match it. Converters add
// "!has(LabelNode)" to selectors that require no label, such as all() in a policy of Calico's, which does not mean
// Nodes.
const (
	LabelNode  = AnnotationPrefix + "node" // the Node's name; only on the network sets of Nodes
	PrefixNode = "pcnode."                 // before the Node's labels
)

// NodeSetName is the name of a Node's network set. It contains a colon, which no object's name does.
func NodeSetName(node string) string { return "node:" + node }

// NodeSet is the network set that stands for a Node as a peer. It holds all the Node's addresses.
func NodeSet(n *Node) *NetworkSet {
	s := &NetworkSet{Name: NodeSetName(n.Name), Labels: map[string]string{LabelNode: n.Name}}
	for k, v := range n.Labels {
		s.Labels[PrefixNode+k] = v
	}
	seen := map[netip.Addr]bool{}
	for _, a := range n.Addrs() {
		if !seen[a] {
			seen[a] = true
			s.Nets = append(s.Nets, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return s
}
