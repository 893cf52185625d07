package connectivity

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

//go:embed objects/namespace.yaml
var namespaceObject string

//go:embed objects/node.yaml
var nodeObjects string

//go:embed objects/services.yaml
var serviceObjects string

//go:embed objects/policies.yaml
var policyObjects string

// testLabel marks the namespace of a test.
const testLabel = "contiv-agent.io/connectivity-test"

// Names of objects that are referred to.
const (
	clusterIP     = "cluster-ip"
	headless      = "headless"
	nodePort      = "node-port"
	nodePortLocal = "node-port-local"
	internalLocal = "internal-local"
	affinity      = "affinity"
	empty         = "empty"
	allowLabel    = "allow-label"
)

// Ports that the test's pods serve, but those on the nodes' network.
const (
	echoPort    = 8080
	labelPort   = 8081
	nobodysPort = 8082
	blockPort   = 8083
)

// fill replaces the placeholders of a manifest by values, as JSON.
func fill(text string, values map[string]string) string {
	var pairs []string
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return len(b) - len(a) }) // @HOSTPORT before @HOST
	for _, name := range names {
		b, err := json.Marshal(values[name])
		if err != nil {
			panic(err) // a string has JSON
		}
		pairs = append(pairs, "@"+name, string(b))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// podName returns the name of a test pod on a node. Long names of nodes are cut.
func podName(role, node string) string {
	name := role + "-" + node
	if len(name) > 63 {
		sum := sha256.Sum256([]byte(node))
		name = fmt.Sprintf("%s-%x", name[:50], sum[:4])
	}
	return name
}

// manifest returns the test's objects, with its namespace and without its policies.
func (c *Config) manifest(nodes []string, image string) string {
	out := []string{fill(namespaceObject, map[string]string{"NAMESPACE": c.Namespace})}
	for i, node := range nodes {
		out = append(out, fill(nodeObjects, map[string]string{
			"NODE": node, "POD": podName(rolePod, node), "PEER": podName(rolePeer, node), "HOSTPORT": strconv.Itoa(c.HostPort),
			"HOST": podName(roleHost, node), "IMAGE": image, "LOCAL": strconv.FormatBool(i == 0),
		}))
	}
	return strings.Join(append(out, serviceObjects), "---\n")
}

// policies returns the policies. One admits only the given addresses.
func policies(admitted []netip.Addr) string {
	var blocks []string
	for _, a := range admitted {
		blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: %q}}", netip.PrefixFrom(a, a.BitLen())))
	}
	slices.Sort(blocks)
	return strings.ReplaceAll(policyObjects, "@BLOCKS", strings.Join(blocks, ", "))
}
