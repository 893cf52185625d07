package realvpp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/contiv-agent/contiv-agent/doctor"
)

// TestVPPPodNetworkDoctor examines a node with a pod: no check of the node finds anything, and each fault that is made becomes one.
func TestVPPPodNetworkDoctor(t *testing.T) {
	c := openPodCluster(t, theVPP(t))
	n := c.nodes[0]
	c.until("STATUS", func() error { return n.client().Status(t.Context()) })
	c.attach(n, "web", "web")
	c.until("the network configuration list", func() error { return exists(filepath.Join(n.lists(), "10-contiv.conflist")) })
	good := c.examine(n)
	for _, name := range []string{
		"forwarding", "forwarding IPv6", "packet filter", "forward chains", "cni status", "state folder", "configuration list", "configuration first", "plugin",
		"network namespace", "links", "mtu", "af_packet_plugin.so", "vxlan_plugin.so",
	} {
		if good[name].Verdict != doctor.OK {
			t.Errorf("a good node: %+v", good[name])
		}
	}
	c.until("no remark on the Node", func() error { return c.noRemark(n) })
	c.check(n.ns.set("ipv4/ip_forward", "0"))
	c.check(n.ns.ip("link add cv-left type veth peer name left\nlink set eth0 mtu 1400\n"))
	n.stopAgent()
	bad := c.examine(n)
	for _, name := range []string{"forwarding", "cni status", "links", "mtu"} {
		if bad[name].Verdict != doctor.Wrong {
			t.Errorf("a faulty node: %+v", bad[name])
		}
	}
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}

// noRemark returns the remarks that the agent's status has on its Node. The uplink is the kernel's, so VPP misses none.
func (c *podCluster) noRemark(n *podNode) (err error) {
	n.ns.do(func() {
		text, failed := exec.Command(c.program, "status", "--status-socket", n.status()).CombinedOutput()
		if remarks := regexp.MustCompile(`(?m)^.*(no uplink|outside the cluster).*$`).FindAllString(string(text), -1); failed != nil || len(remarks) > 0 {
			err = fmt.Errorf("status: %v, %q", failed, remarks)
		}
	})
	return err
}

// examine executes the doctor on a node.
func (c *podCluster) examine(n *podNode) map[string]doctor.Check {
	c.t.Helper()
	var text []byte
	n.ns.do(func() {
		cmd := exec.Command(c.program, "doctor", "--cni", "-o", "json", "--vpp-socket", n.socket(), "--status-socket", n.status(), "--cni-state", n.dir, "--cni-conf-dir", n.lists(), "--cni-bin-dir", n.programs(),
			"--stats-socket", "", "--vpp-lock", filepath.Join(n.dir, "none"))
		text, _ = cmd.Output() // it exits with 3 if something is wrong
	})
	r := &doctor.Report{}
	if err := json.Unmarshal(text, r); err != nil {
		c.t.Fatalf("doctor: %v: %s", err, text)
	}
	out := map[string]doctor.Check{}
	for _, check := range r.Checks {
		out[check.Name] = check
	}
	return out
}
