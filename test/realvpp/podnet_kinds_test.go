package realvpp

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// twoKilled are two nodes of a shape, for kills.
func twoKilled(t *testing.T, path string, shape clusterShape) *killed {
	c := newPodCluster(t, shape)
	c.addNode(path, 1)
	c.addNode(path, 2)
	return killNodes(c)
}

// TestVPPPodNetworkKilledTap is TestVPPPodNetworkKilled with taps, and a pod with a veth among three.
func TestVPPPodNetworkKilledTap(t *testing.T) {
	first, cases := theSeeds(t)
	path := theVPP(t)
	needTaps(t, path)
	k := twoKilled(t, path, clusterShape{plugins: []string{"tap_plugin.so"}, flags: []string{"--pod-interface", "tap"}})
	k.kinds = []string{"", "", protocol.InterfaceVeth}
	runSeeds(k, first, cases)
}
