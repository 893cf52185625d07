package realvpp

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
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

// TestVPPPodNetworkKilledMemif is TestVPPPodNetworkKilled with memifs, which no program joins, and a pod with a veth among three. Neither VPP nor the
// agent's folder has a socket in the end.
func TestVPPPodNetworkKilledMemif(t *testing.T) {
	first, cases := theSeeds(t)
	k := twoKilled(t, theVPP(t), clusterShape{plugins: []string{memifPlugin}, simulated: []string{"--memif-sockets"}})
	k.kinds = []string{protocol.InterfaceMemif, protocol.InterfaceMemif, ""}
	k.also = func() error {
		files, err := filepath.Glob(filepath.Join(k.n.dir, "memif", "*"))
		if sockets := k.n.sockets(t); err != nil || len(sockets)+len(files) > 0 {
			return fmt.Errorf("VPP has the sockets %q, the folder has %q, %v", sockets, files, err)
		}
		return nil
	}
	runSeeds(k, first, cases)
}

// TestVPPPodNetworkKilledNIC is TestVPPPodNetworkKilled on nodes that give their only NIC to VPP. A kill within a trial makes the agent refuse the NIC, and
// an administrator removes the file. After each seed one link alone has the node's address, and a connection of the node to the outside continues. In
// the end an agent without the flag gives the NIC back to the kernel.
func TestVPPPodNetworkKilledNIC(t *testing.T) {
	first, cases := theSeeds(t)
	path := theVPP(t)
	c := openNICCluster(t, "198.51.100.10:7001")
	c.repeats(c.world, "tcp4", 7001)
	one, two := c.addNode(path, 1), c.addNode(path, 2)
	for _, n := range []*podNode{one, two} {
		c.nicIs("take-over of "+n.name, n, "contiv-nic", "taken")
	}
	line := c.stream(one, "198.51.100.10:7001")
	k := killNodes(c)
	c.serve(one.ns, one.name, 9000)
	refused := 0
	k.mend = func() {
		t.Helper()
		k.until("the NIC is VPP's\n"+strings.Join(k.story, "\n"), func() error {
			phase := one.nicPhase()
			if strings.HasPrefix(phase, "refused") {
				k.note("an administrator removes the file of the NIC: %s", phase)
				refused++
				one.stopAgent()
				k.check(os.Remove(filepath.Join(one.dir, "nic.json")))
				k.startAgent(one)
			}
			if at := one.holder(); at != "contiv-nic" || phase != "taken" {
				return fmt.Errorf("%q has the node's address, phase %q", at, phase)
			}
			return nil
		})
		line("after the kills")
		c.answers("the outside to the node", c.world, one.addr+":9000", "node-1 sees")
		k.ready()
	}
	runSeeds(k, first, cases)
	t.Logf("the NIC was refused %d times, after kills within a trial", refused)
	one.stopAgent()
	one.flags = nil
	c.startAgent(one)
	c.until("the kernel has the NIC", func() error {
		var left error
		one.ns.do(func() { _, left = net.InterfaceByName("contiv-nic") })
		if at, phase := one.holder(), one.nicPhase(); at != "eth0" || phase != "" || left == nil {
			return fmt.Errorf("%q has the node's address, phase %q, contiv-nic: %v", at, phase, left)
		}
		return nil
	})
	line("the kernel has the NIC")
}
