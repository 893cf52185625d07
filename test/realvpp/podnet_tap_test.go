package realvpp

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// needTaps skips a test unless VPP can make taps here. First a pod that asks for one must be refused.
func needTaps(t *testing.T, path string) {
	t.Helper()
	why := noTaps(path)
	if why == nil {
		return
	}
	c := newPodCluster(t, clusterShape{plugins: []string{"tap_plugin.so"}})
	c.refuses(c.addNode(path, 1), protocol.InterfaceTap, "tap_create_v3")
	t.Skipf("VPP cannot make taps, and a pod that asks for one is refused: %v", why)
}

// noTaps is why VPP cannot make taps here. The simulated one needs no vhost.
func noTaps(path string) error {
	devices := podnet.TapDevices
	if isSimulated(path) {
		devices = devices[:1]
	}
	_, why := podnet.PreferTaps(devices)
	return why
}

// hostName is the link of the node that a pod's result names; it has none if the pod has a tap.
func hostName(p *podOf) string {
	if p.result.Host == nil {
		return "no link"
	}
	return p.result.Host.Name
}

// inVPP is VPP's name of a pod's interface.
func (p *podOf) inVPP(t *testing.T, c *plainConn) string {
	r := c.conn.Do(t.Context(), vpp.Call{Dump: true, Msg: &interfaces.SwInterfaceDump{SwIfIndex: noInterface}})[0]
	for _, d := range r.Details {
		if d := d.(*interfaces.SwInterfaceDetails); strings.Contains(d.Tag, p.req.Pod.Namespace+"/"+p.req.Pod.Name+":") {
			return d.InterfaceName
		}
	}
	return fmt.Sprintf("no interface: %v", r.Err)
}

// network is all that a pod has in its namespace: links, addresses, routes, neighbours.
func (p *podOf) network(t *testing.T) string {
	var lines []string
	p.do(func() {
		for _, args := range [][]string{{"-o", "addr"}, {"route"}, {"-6", "route"}, {"neigh", "show", "nud", "permanent"}, {"-6", "neigh", "show", "nud", "permanent"}} {
			out, err := exec.Command("ip", args...).CombinedOutput()
			if err != nil {
				t.Errorf("ip %v: %v: %s", args, err, out)
			}
			for line := range strings.Lines(string(out)) {
				if _, rest, numbered := strings.Cut(line, ": "); numbered {
					line = rest // the kernel numbers links anew
				}
				lines = append(lines, strings.TrimSpace(strings.ReplaceAll(line, " tentative", ""))) // the kernel's own address is tried first
			}
		}
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			lines = append(lines, "no eth0")
			return
		}
		lines = append(lines, fmt.Sprintf("eth0 %s mtu %d %s", link.HardwareAddr, link.MTU, link.Flags&net.FlagUp))
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// restartWith starts the agent of a node anew with other flags. It must write nothing.
func (c *podCluster) restartWith(n *podNode, flags ...string) {
	c.t.Helper()
	n.stopAgent()
	n.flags = flags
	c.startAgent(n)
	c.until("STATUS after a restart of the agent", func() error { return n.client().Status(c.t.Context()) })
	st, err := control.FetchStatus(c.t.Context(), n.status(), true)
	c.check(err)
	for _, txn := range st.History {
		if txn.Writes > 0 {
			c.t.Errorf("%san agent with %q writes: %+v", c.tails(), flags, txn)
		}
	}
}

// TestVPPPodNetworkTap: pods with taps and pods with veths talk on all paths under the same policies. Pods keep their kind when the agent's flag
// changes. A tap vanishes with VPP, and returns with the same addresses, routes and connections.
func TestVPPPodNetworkTap(t *testing.T) {
	path := theVPP(t)
	needTaps(t, path)
	c := newPodCluster(t, clusterShape{plugins: []string{"tap_plugin.so"}})
	one, two := c.addNode(path, 1), c.addNode(path, 2)
	old, far := c.attach(one, "old", "client"), c.attach(two, "far", "web", func(r *protocol.Request) { r.Interface = protocol.InterfaceTap })
	before := c.settled(one)
	c.restartWith(one, "--pod-interface", "tap")
	a, b := c.attach(one, "a", "client"), c.attach(one, "b", "web")
	c.repeats(c.world, "tcp4", 7001)
	c.serve(c.world, "world", 7000)
	for _, n := range c.nodes {
		c.serve(n.ns, n.name, 9000)
	}
	for _, p := range []*podOf{old, a, b, far} {
		c.serve(p.netns, p.req.Pod.Name, 8080)
		if (p.result.Host == nil) != (p != old) {
			t.Errorf("the result of %s: %+v", p.req.Pod.Name, p.result)
		}
	}
	c.mesh("taps", old, a, b, far)
	c.reaches("pod to the outside", a.netns, "198.51.100.10:7000", "world sees "+one.addr)
	c.service(b)
	c.reaches("pod to a Service", a.netns, "10.96.0.10:80", "b sees "+a.addr(false).String())
	c.reaches("pod to its own Service", b.netns, "10.96.0.10:80", "b sees")
	c.check(one.client().Check(t.Context(), a.req, a.result))

	friend := c.allowFriend(one, a, b)
	c.reaches("an allowed pod", friend.netns, hostPort(b.addr(false), 8080), "b sees")
	c.silent("a denied pod", old.netns, hostPort(b.addr(false), 8080))

	line, was := c.stream(&podNode{process: process{ns: a.netns}}, "198.51.100.10:7001"), a.network(t)
	line("before")
	c.survive(one, friend, a, b, far)
	line("after a restart of VPP")
	if is := a.network(t); is != was {
		t.Errorf("a restart of VPP: the pod had\n%s\nand has\n%s", was, is)
	}
	one.kill()
	c.until("the tap vanishes with VPP", func() error {
		if text := a.network(t); !strings.Contains(text, "no eth0") {
			return errors.New(text)
		}
		return nil
	})
	if !strings.Contains(old.network(t), "eth0") {
		t.Error("the veth vanishes as well")
	}
	c.check(one.start())
	line("VPP is back")
	c.until("the pod has its network again", func() error { return differ(was, a.network(t)) })

	c.restartWith(one, "--pod-interface", "veth")
	c.reaches("a tap of an agent that prefers veths", friend.netns, hostPort(b.addr(false), 8080), "b sees")
	c.losesTaps(one, before, a, b, friend)
}

// losesTaps ends the pods with taps: by DEL, by GC, and by the end of a sandbox, after which the kernel has removed the link. Nothing is left.
func (c *podCluster) losesTaps(n *podNode, before string, deleted, collected, ended *podOf) {
	c.t.Helper()
	for range 2 {
		c.check(n.client().Delete(c.t.Context(), deleted.req))
	}
	if text := deleted.network(c.t); !strings.Contains(text, "no eth0") {
		c.t.Errorf("after the DEL the pod has\n%s", text)
	}
	delete(c.pods, ended.req.Pod.Name)
	ended.close()
	c.check(n.client().Collect(c.t.Context(), []protocol.Attachment{c.pods["old"].req.Attachment}))
	for _, name := range []string{"policy", "service", "pod-a", "pod-b", "pod-friend"} {
		c.removeManifest(name + ".yaml")
	}
	c.until("nothing is left", func() error { return differ(before, n.left(c.t)) })
	if text := collected.network(c.t); !strings.Contains(text, "no eth0") {
		c.t.Errorf("after the GC the pod has\n%s", text)
	}
}
