// Package connectivity tests whether the network of a cluster works: it makes pods and Services, measures paths between them, and turns what it finds
// into checks with a result, a reason for each path that fails, and the probable cause.
//
//	Run ── objects ──▶ Cluster (kubectl apply): a namespace, two pods and a host-network pod on each node, Services
//	    ── plan ─────▶ paths: from a pod, a probe, what has to come of it
//	    ── probes ───▶ Cluster (kubectl exec): package probe in the pods
//	    ── explain ──▶ causes, from outcomes and facts alone
//	    ── Report    text, JSON, JUnit
//
// Invariant: it changes nothing outside its namespace, and removes that when it ends, also when it is interrupted.
package connectivity

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/status"
)

// Cluster is what the test does in a cluster. Arguments are those of kubectl.
type Cluster interface {
	// Apply creates or changes objects. Those without a namespace get this one.
	Apply(ctx context.Context, namespace, manifest string) error
	// Delete deletes objects, and waits as the arguments say.
	Delete(ctx context.Context, args ...string) error
	// Read reads an object or a list: kubectl get.
	Read(ctx context.Context, into any, args ...string) error
	// Execute runs a program in a pod and passes on each line that it writes. The error has what the program complains about.
	Execute(ctx context.Context, namespace, pod, stdin string, line func([]byte), command ...string) error
}

// Agents answer for their nodes.
type Agents interface {
	// Status returns the state of the agent in a pod.
	Status(ctx context.Context, node, pod string) (*status.Status, error)
	// Differences returns what the agent in a pod would change in its VPP, one line for each change.
	Differences(ctx context.Context, node, pod string) ([]string, error)
	// Trace answers questions about packets from the objects of the cluster; "": the packet is delivered.
	Trace(ctx context.Context, questions []Question) ([]string, error)
}

// Question is one about the fate of a packet, as trace reads it.
type Question struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
}

// Config selects what is tested.
type Config struct {
	Namespace string        // of the test; it must not exist, or be left from an earlier test
	Agents    string        // namespace of the agents' pods
	Selector  string        // of the agents' pods
	Container string        // of the agent in its pod
	Image     string        // of the test's pods; "": the agents' own
	Nodes     []string      // only these; none: all that run Linux
	Groups    []string      // of checks; none: all
	Limit     time.Duration // of one connection or question
	Start     time.Duration // how long the test's pods may take to start
	HostPort  int           // of the test's pods on the nodes' network
	Keep      bool          // leave the namespace
}

// Groups of checks, in their order.
const (
	GroupAgents   = "agents"
	GroupPods     = "pods"
	GroupHosts    = "hosts"
	GroupServices = "services"
	GroupDNS      = "dns"
	GroupPolicies = "policies"
)

// Groups returns all groups of checks.
func Groups() []string {
	return []string{GroupAgents, GroupPods, GroupHosts, GroupServices, GroupDNS, GroupPolicies}
}
