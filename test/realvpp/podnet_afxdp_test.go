package realvpp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// xdpPlugin is VPP's plugin for interfaces of AF_XDP.
const xdpPlugin = "af_xdp_plugin.so"

// needPlugin skips a test if VPP was built without a plugin.
func needPlugin(t *testing.T, path, plugin string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "../lib/*/vpp_plugins", plugin))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Skipf("%s has no %s", path, plugin)
	}
}

// needXDP skips a test if VPP has no such plugin, or the kernel no such sockets.
func needXDP(t *testing.T, path string) {
	t.Helper()
	needPlugin(t, path, xdpPlugin)
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skipf("the kernel has no AF_XDP: %v", err)
	}
	_ = unix.Close(fd) // nothing used it
}

// xdpUplink lets a node's VPP make an AF_XDP interface on up0 when it starts. Its name is VPP's own, with the number of the interface.
func (n *podNode) xdpUplink() {
	const name = "up0/0"
	n.flags = []string{"--node-to-node", "direct", "--node-uplink", "vpp:" + name}
	n.plugins = append(n.plugins, xdpPlugin)
	mac := vppMAC(78)
	n.commands = fmt.Sprintf("create interface af_xdp host-if up0\nset interface mac address %s %s\n", name, net.HardwareAddr(mac[:]))
	for _, addr := range strings.Split(n.uplink, ",") {
		n.commands += fmt.Sprintf("set interface ip address %s %s\n", name, addr)
	}
	n.commands += fmt.Sprintf("set interface state %s up\n", name)
}

// TestVPPPodNetworkAFXDP: nodes whose VPPs share a link, without tunnels. The VPP of one node reads a link of the kernel by af_packet, that of the other has made an AF_XDP
// interface by the commands that it executes when it starts.
func TestVPPPodNetworkAFXDP(t *testing.T) {
	path := realVPP(t, "has no AF_XDP")
	needXDP(t, path)
	c := newPodCluster(t, clusterShape{direct: true, afXDP: true})
	one, three := c.addNode(path, 1), c.addNode(path, 3)
	pods := c.podOnEach()
	c.allPaths("AF_XDP", pods)
	c.readsByXDP(three)
	c.once(pods[0].netns, pods[1].netns, pods[1].addr(false))
	c.once(pods[1].netns, pods[0].netns, pods[0].addr(false))
	c.bulk("to the AF_XDP interface", pods[0].netns, pods[1].netns, pods[1].addr)
	c.bulk("from the AF_XDP interface", pods[1].netns, pods[0].netns, pods[0].addr)

	friend := c.allowFriend(one, pods[0], pods[1])
	for _, v6 := range c.families() {
		c.reaches("an allowed pod", friend.netns, hostPort(pods[1].addr(v6), 8080), "p3 sees "+friend.addr(v6).String())
		c.silent("a denied pod", pods[0].netns, hostPort(pods[1].addr(v6), 8080))
	}
	three.kill()
	c.check(three.start())
	for _, v6 := range c.families() {
		c.reaches("an allowed pod, after a restart of VPP", friend.netns, hostPort(pods[1].addr(v6), 8080), "p3 sees "+friend.addr(v6).String())
		c.silent("a denied pod, after a restart of VPP", pods[0].netns, hostPort(pods[1].addr(v6), 8080))
	}
	c.readsByXDP(three)
	c.removeManifest("policy.yaml")
	c.mesh("after a restart of VPP", pods...)
	one.kill()
	three.kill()
	c.check(one.start())
	c.check(three.start())
	c.allPaths("after restarts of both VPPs", pods)
}

// readsByXDP fails unless the kernel's link has an XDP program: the path that is tested is not another one.
func (c *podCluster) readsByXDP(n *podNode) {
	c.t.Helper()
	var text []byte
	n.ns.do(func() { text, _ = exec.Command("ip", "-d", "link", "show", "up0").CombinedOutput() })
	if !strings.Contains(string(text), "prog/xdp") {
		c.t.Errorf("no XDP program reads the link:\n%s", text)
	}
}

// bulk sends a megabyte on a TCP connection of each family: frames of full size.
func (c *podCluster) bulk(what string, from, to *netns, addr func(v6 bool) netip.Addr) {
	c.t.Helper()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, v6 := range c.families() {
		var l net.Listener
		var conn net.Conn
		var err, failed error
		at := hostPort(addr(v6), 7090)
		to.do(func() { l, err = net.Listen("tcp", at) })
		c.check(err)
		got := make(chan []byte, 1)
		go func() {
			in, err := l.Accept()
			if err != nil {
				got <- nil
				return
			}
			defer in.Close()
			_ = in.SetDeadline(time.Now().Add(patience)) // a connection has deadlines
			text, _ := io.ReadAll(in)                    // what is missing shows below
			got <- text
		}()
		from.do(func() { conn, err = net.DialTimeout("tcp", at, patience) })
		c.check(err)
		_ = conn.SetDeadline(time.Now().Add(patience)) // as above
		_, err = conn.Write(sent)
		failed = conn.Close()
		c.check(errors.Join(err, failed))
		if text := <-got; !bytes.Equal(text, sent) {
			c.t.Errorf("%s, IPv6 %t: %d bytes of %d arrived", what, v6, len(text), len(sent))
		}
		_ = l.Close() // it has served
	}
	c.t.Logf("%s: a megabyte arrived in each family", what)
}
