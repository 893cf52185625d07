package realvpp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clusterShape is what differs between clusters.
type clusterShape struct {
	only6     bool     // neither nodes nor pods have IPv4
	direct    bool     // VPPs share a link, br1; that of node-3 has its interface by its own configuration
	afXDP     bool     // that interface is one of AF_XDP
	nic       string   // nodes give their only NIC to VPP, and check this address; "": they do not
	flags     []string // of each agent
	plugins   []string // of each VPP, beside those that every test needs
	simulated []string // arguments of each VPP that is simulated
}

// podNode is a node. Its number n is the last part of its first address, and of its pods' ranges.
type podNode struct {
	process
	number int
	name   string
	addr   string    // of the NIC, IPv4; "" if nodes have none
	addr6  string    // of the NIC, IPv6
	uplink string    // addresses of VPP's own link
	flags  []string  // of its agent, beside those of the cluster
	agent  *exec.Cmd // nil: it does not run
	relay  string    // VPP's socket as the agent sees it; "": VPP's own
}

// openPodCluster starts two nodes of both families.
func openPodCluster(t *testing.T, path string) *podCluster {
	c := newPodCluster(t, clusterShape{})
	c.addNode(path, 1)
	c.addNode(path, 2)
	return c
}

// newPodCluster is a cluster without nodes: the network between them, and the world behind it.
func newPodCluster(t *testing.T, shape clusterShape) *podCluster {
	theVPP(t) // or the test is skipped before anything is built
	c := &podCluster{t: t, clusterShape: shape, dir: t.TempDir(), pods: map[string]*podOf{}}
	c.program = theAgent(t)
	c.plugin = filepath.Join(c.dir, "contiv-cni")
	if out, err := exec.Command("go", "build", "-tags", "grpcnotrace", "-ldflags=-w", "-o", c.plugin, "../../cmd/contiv-cni").CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	var err error
	c.world, err = newNetns()
	c.check(err)
	t.Cleanup(c.world.close)
	c.check(c.world.ip("link set lo up\nlink add br0 type bridge\nlink set br0 up\naddr add 2001:db8:16::100/64 dev br0 nodad\naddr add 2001:db8:ffff::10/128 dev lo nodad\n"))
	if !c.only6 {
		c.check(c.world.ip("addr add 192.168.16.100/24 dev br0\naddr add 198.51.100.10/32 dev lo\n"))
	}
	if c.direct {
		c.check(c.world.ip("link add br1 type bridge\nlink set br1 up\n"))
	}
	c.check(os.Mkdir(c.manifests(), 0o700))
	c.write("namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {kubernetes.io/metadata.name: default}}\n")
	return c
}

// addNode starts VPP and agent of a node, and makes its Node object.
func (c *podCluster) addNode(path string, number int) *podNode {
	c.t.Helper()
	n := &podNode{number: number, name: fmt.Sprintf("node-%d", number), addr6: fmt.Sprintf("2001:db8:16::%d", number)}
	if !c.only6 {
		n.addr = fmt.Sprintf("192.168.16.%d", number)
	}
	n.path, n.dir, n.plugins = path, filepath.Join(c.dir, n.name), append([]string{"vxlan_plugin.so", policerPlugin}, c.clusterShape.plugins...)
	n.simulated = c.clusterShape.simulated
	c.check(os.Mkdir(n.dir, 0o700))
	c.t.Cleanup(func() { n.stopAgent(); n.kill(); n.ns.close() })
	c.boot(n)
	if c.relayed != nil {
		c.relayed(n)
	}
	c.nodes = append(c.nodes, n)
	c.writeNode(n)
	c.startAgent(n)
	return n
}

// boot gives a node a network stack with a NIC, and starts VPP.
func (c *podCluster) boot(n *podNode) {
	c.t.Helper()
	var err error
	n.ns, err = newNetns()
	c.check(err)
	c.check(n.ns.ip(fmt.Sprintf("link set lo up\nlink add eth0 type veth peer name %s\nlink set %s netns %s\nlink set eth0 up\naddr add %s/64 dev eth0 nodad\nroute add default via 2001:db8:16::100\n",
		n.name, n.name, c.world.path, n.addr6)))
	if n.addr != "" {
		c.check(n.ns.ip(fmt.Sprintf("addr add %s/24 dev eth0\nroute add default via 192.168.16.100\n", n.addr)))
	}
	c.check(c.world.ip(fmt.Sprintf("link set %s master br0 up\n", n.name)))
	c.check(n.ns.set("ipv4/ip_forward", map[bool]string{false: "1", true: "0"}[c.only6]))
	c.check(n.ns.set("ipv6/conf/all/forwarding", "1"))
	if c.direct {
		c.wireUplink(n)
	}
	if c.nic != "" {
		n.uplink = fmt.Sprintf("192.168.16.%d/24,2001:db8:16::%d/64", 100+n.number, 100+n.number)
		n.flags = []string{"--node-to-node", "direct", "--node-nic", "eth0", "--nic-check", c.nic, "--nic-confirm-within", "5s"}
		// As NICs do, the far end of this one finishes checksums.
		c.world.do(func() { err = errors.Join(wholeChecksums("br0"), wholeChecksums(n.name)) })
		c.check(err)
	}
	c.check(n.start())
	if c.direct && n.number == 3 && !c.afXDP {
		n.ownUplink(c.t)
	}
}

// wireUplink gives a node the link up0 for its VPP.
func (c *podCluster) wireUplink(n *podNode) {
	c.t.Helper()
	n.uplink = fmt.Sprintf("192.168.17.%d/24,2001:db8:17::%d/64", n.number, n.number)
	c.check(n.ns.ip(fmt.Sprintf("link add up0 type veth peer name u%d\nlink set u%d netns %s\nlink set up0 up\n", n.number, n.number, c.world.path)))
	c.check(c.world.ip(fmt.Sprintf("link set u%d master br1 up\n", n.number)))
	n.flags = []string{"--node-to-node", "direct", "--node-uplink", map[bool]string{false: "up0", true: "vpp:host-up0"}[n.number == 3]}
	if n.number == 3 && c.afXDP {
		n.xdpUplink()
	}
}

// writeNode makes the Node object of a node's present addresses.
func (c *podCluster) writeNode(n *podNode) {
	c.t.Helper()
	ranges, addrs := []string{fmt.Sprintf(`"2001:db8:1:%d::/64"`, n.number)}, []string{n.addr6}
	if n.addr != "" {
		ranges, addrs = append([]string{fmt.Sprintf("10.1.%d.0/24", n.number)}, ranges...), append([]string{n.addr}, addrs...)
	}
	text := ""
	for _, a := range addrs {
		text += fmt.Sprintf("{type: InternalIP, address: %q}, ", a)
	}
	c.write(n.name+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, annotations: {contiv-agent.io/uplink-addresses: %q}}\nspec: {podCIDRs: [%s]}\nstatus: {addresses: [%s]}\n", n.name, n.uplink, strings.Join(ranges, ", "), strings.TrimSuffix(text, ", ")))
}

// removeManifest deletes the objects of a manifest.
func (c *podCluster) removeManifest(name string) {
	c.t.Helper()
	c.check(os.Remove(filepath.Join(c.manifests(), name)))
}

// families are those of the pods: false stands for IPv4.
func (c *podCluster) families() []bool {
	if c.only6 {
		return []bool{true}
	}
	return []bool{false, true}
}

func (c *podCluster) serviceCIDRs() string {
	if c.only6 {
		return "2001:db8:96::/112"
	}
	return "10.96.0.0/16,2001:db8:96::/112"
}

// status is the status of a running pod, as a kubelet reports it.
func (p *podOf) status() string {
	text := ""
	for _, i := range p.result.IPs {
		text += fmt.Sprintf("{ip: %q}, ", i.Address.Addr())
	}
	return fmt.Sprintf("phase: Running, podIP: %q, podIPs: [%s]", p.result.IPs[0].Address.Addr(), strings.TrimSuffix(text, ", "))
}

// addr is a pod's address in a family; zero: it has none.
func (p *podOf) addr(v6 bool) netip.Addr {
	for _, i := range p.result.IPs {
		if i.Address.Addr().Is6() == v6 {
			return i.Address.Addr()
		}
	}
	return netip.Addr{}
}

// nodeAddr is the address of a node's NIC in a family.
func (n *podNode) nodeAddr(v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(n.addr6)
	}
	return netip.MustParseAddr(n.addr)
}
