package model

import "net/netip"

// Labels endpoints get from where they are, and prefixes of the labels they inherit (Calico v3.31, projectcalico/api).
const (
	LabelNamespace       = "projectcalico.org/namespace"      // of pods and namespaced network sets; host endpoints lack it
	LabelOrchestrator    = "projectcalico.org/orchestrator"   // of pods: OrchestratorKubernetes
	LabelServiceAccount  = "projectcalico.org/serviceaccount" // of pods: the service account's name
	LabelName            = "projectcalico.org/name"           // after a prefix below: the namespace's or account's name
	PrefixNamespace      = "pcns."                            // before a namespace's labels, in its profile
	PrefixServiceAccount = "pcsa."                            // before a service account's labels, in its profile

	OrchestratorKubernetes = "k8s"
)

// Nodes as peers of rules (AdminNetworkPolicy, ClusterNetworkPolicy: nodes) are selected through network sets, one for each
// Node: NodeSet makes it, and whoever feeds a calculation gives it what NodeSet returns. Its only labels are LabelNode and the
// Node's own under PrefixNode, so no selector that positively asks for anything else meets it; converters add
// "!has(LabelNode)" to those that ask for nothing, such as all() in a policy of Calico's, which does not mean Nodes.
const (
	LabelNode  = AnnotationPrefix + "node" // the Node's name; only on the network sets of Nodes
	PrefixNode = "pcnode."                 // before the Node's labels
)

// NodeSetName is the name of a Node's network set. No object's name has a colon.
func NodeSetName(node string) string { return "node:" + node }

// NodeSet is the network set that stands for a Node as a peer: all its addresses.
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
