package realvpp

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
)

// nicPhase is the phase of a node's NIC, as the agent's file has it.
func (n *podNode) nicPhase() string {
	text, err := os.ReadFile(filepath.Join(n.dir, "nic.json"))
	if err != nil {
		return ""
	}
	var s struct{ Phase, Reason string }
	if err := json.Unmarshal(text, &s); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(s.Phase + " " + s.Reason)
}

// holder is the link that has the node's address.
func (n *podNode) holder() (name string) {
	n.ns.do(func() {
		for _, link := range []string{"eth0", "contiv-nic"} {
			i, err := net.InterfaceByName(link)
			if err != nil {
				continue
			}
			addrs, _ := i.Addrs() // none
			for _, a := range addrs {
				if strings.HasPrefix(a.String(), n.addr+"/") {
					name += link
				}
			}
		}
	})
	return name
}

func (c *podCluster) nicIs(what string, n *podNode, link, phase string) {
	c.t.Helper()
	c.until(what, func() error {
		if at, is := n.holder(), n.nicPhase(); at != link || !strings.HasPrefix(is, phase) || phase == "" && is != "" {
			return fmt.Errorf("%s has the node's address, phase %q; want %s, %q", at, is, link, phase)
		}
		return nil
	})
	c.t.Logf("%s: %s has the node's address, phase %q", what, n.holder(), n.nicPhase())
}

// openNICCluster has nodes that give their only NIC to VPP.
func openNICCluster(t *testing.T, check string) *podCluster {
	c := newPodCluster(t, clusterShape{nic: check})
	return c
}

// stream is a connection of a node to the outside, with a line a time.
func (c *podCluster) stream(n *podNode, to string) func(what string) {
	c.t.Helper()
	conn := c.openLine(n.ns, to)
	return func(what string) {
		c.t.Helper()
		if err := conn.echoes(); err != nil {
			c.t.Fatalf("%s%s: %v", c.tails(), what, err)
		}
	}
}

// line is a connection to a server that repeats lines.
type line struct {
	net.Conn
	in   *bufio.Reader
	sent int
}

// openLine opens a connection from a network namespace.
func (c *podCluster) openLine(from *netns, to string) *line {
	c.t.Helper()
	var conn net.Conn
	c.until("connection to "+to, func() (err error) {
		from.do(func() { conn, err = net.DialTimeout("tcp", to, 5*time.Second) })
		return err
	})
	c.t.Cleanup(func() { _ = conn.Close() })
	return &line{Conn: conn, in: bufio.NewReader(conn)}
}

// echoes sends a line, and waits for it.
func (l *line) echoes() error {
	l.sent++
	text := fmt.Sprintf("%d\n", l.sent)
	_ = l.SetDeadline(time.Now().Add(patience)) // a connection has deadlines
	if _, err := l.Write([]byte(text)); err != nil {
		return err
	}
	if got, err := l.in.ReadString('\n'); err != nil || got != text {
		return fmt.Errorf("got %q, %w", got, cmp.Or(err, errors.New("another line")))
	}
	return nil
}

// TestVPPPodNetworkNIC: nodes give their only NIC to VPP. Connections of the node, of pods and between nodes continue, also while VPP and agent die.
func TestVPPPodNetworkNIC(t *testing.T) {
	path := theVPP(t)
	c := openNICCluster(t, "198.51.100.10:7001")
	c.repeats(c.world, "tcp4", 7001)
	c.serve(c.world, "world", 7000)
	one, two := c.addNode(path, 1), c.addNode(path, 2)
	line := c.stream(one, "198.51.100.10:7001")
	for _, n := range c.nodes {
		c.nicIs("take-over of "+n.name, n, "contiv-nic", "taken")
		c.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
		c.serve(n.ns, n.name, 9000)
	}
	line("after the take-over")
	a, far := c.attach(one, "a", "client"), c.attach(two, "far", "web")
	c.serveAll(a, far)
	c.mesh("NICs in VPP", a, far)
	c.reaches("node to node", one.ns, two.addr+":9000", "node-2 sees "+one.addr)
	c.reaches("the outside to a node", c.world, one.addr+":9000", "node-1 sees 192.168.16.100")
	for _, v6 := range c.families() {
		c.reaches("pod to the outside", a.netns, map[bool]string{false: "198.51.100.10:7000", true: "[2001:db8:ffff::10]:7000"}[v6], "world sees "+one.nodeAddr(v6).String())
	}
	c.once(c.world, one.ns, one.nodeAddr(false))
	c.once(one.ns, two.ns, two.nodeAddr(false))
	c.service(far)
	c.reaches("pod to Service", a.netns, "10.96.0.10:80", "far sees "+a.addr(false).String())

	one.stopAgent()
	line("without an agent")
	c.startAgent(one)
	c.until("STATUS after a restart of the agent", func() error { return one.client().Status(t.Context()) })
	c.nicIs("a restarted agent", one, "contiv-nic", "taken")
	line("after a restart of the agent")

	one.kill()
	began := time.Now()
	c.nicIs("VPP was killed", one, "eth0", "")
	t.Logf("the kernel had the NIC again after at most %s", time.Since(began).Round(time.Millisecond))
	line("after VPP was killed")
	c.once(c.world, one.ns, one.nodeAddr(false))
	c.check(one.start())
	c.nicIs("VPP is back", one, "contiv-nic", "taken")
	line("after VPP was back")
	c.mesh("VPP is back", a, far)

	one.stopAgent() // both die
	one.kill()
	c.startAgent(one)
	c.nicIs("agent and VPP were killed, and the agent is back", one, "eth0", "")
	line("without VPP")
	c.check(one.start())
	c.nicIs("all are back", one, "contiv-nic", "taken")
	line("all are back")

	c.check(one.endAgent()) // as a kubelet ends agent and VPP of a pod
	one.kill()
	c.nicIs("the agent was stopped, and VPP ended", one, "eth0", "")
	line("the agent was stopped, and VPP ended")
	c.once(c.world, one.ns, one.nodeAddr(false))
	c.check(one.start())
	c.startAgent(one)
	c.nicIs("the next agent and VPP", one, "contiv-nic", "taken")
	line("the next agent and VPP")

	flags := one.flags
	one.stopAgent() // an agent without the flag
	one.flags = nil
	c.startAgent(one)
	c.until("the kernel has the NIC", func() error {
		if at := one.holder(); at != "eth0" {
			return errors.New(at)
		}
		return nil
	})
	line("an agent without the flag")
	c.until("VPP gives the NIC up, and the agent forgets it", func() error {
		var failed error
		one.ns.do(func() { _, failed = net.InterfaceByName("contiv-nic") })
		if failed == nil || one.nicPhase() != "" {
			return fmt.Errorf("phase %q, contiv-nic: %v", one.nicPhase(), failed)
		}
		return nil
	})
	line("VPP has nothing of the NIC")
	c.reaches("the outside by IPv6", one.ns, "[2001:db8:ffff::10]:7000", "world sees "+one.addr6)

	one.stopAgent()
	one.flags = flags
	c.startAgent(one)
	c.nicIs("an agent with the flag", one, "contiv-nic", "taken")
	one.stopAgent()
	one.ns.do(func() {
		out, err := exec.Command(c.program, "cleanup", "--vpp-socket", one.socket(), "--journal", filepath.Join(one.dir, "journal"), "--status-socket", one.status(),
			"--cni-state", one.dir, "--cni-conf-dir", one.lists(), "--cni-bin-dir", one.programs()).CombinedOutput()
		if err != nil {
			t.Errorf("cleanup: %v: %s", err, out)
		}
	})
	c.nicIs("cleanup", one, "eth0", "")
	line("after cleanup")
}

// TestVPPPodNetworkNICRefused: the API server does not answer after the take-over, or the agent is killed before it does: the kernel has the NIC again, and
// keeps it.
func TestVPPPodNetworkNICRefused(t *testing.T) {
	path := theVPP(t)
	c := openNICCluster(t, "198.51.100.10:7002") // nobody listens
	c.repeats(c.world, "tcp4", 7001)
	n := c.addNode(path, 1)
	line := c.stream(n, "198.51.100.10:7001")
	c.nicIs("a trial", n, "contiv-nic", "trial")
	line("in the trial")
	c.nicIs("no answer", n, "eth0", "refused the API server has not answered")
	line("after the trial")
	c.showsRefusal(n, "the API server has not answered")
	n.stopAgent()
	c.startAgent(n)
	c.until("STATUS of the next agent", func() error { return n.client().Status(t.Context()) })
	c.nicIs("the next agent", n, "eth0", "refused")
	c.showsRefusal(n, "the API server has not answered")

	n.stopAgent()
	c.check(os.Remove(filepath.Join(n.dir, "nic.json")))
	n.flags = append(n.flags, "--nic-confirm-within", "1h")
	c.startAgent(n)
	c.nicIs("another trial", n, "contiv-nic", "trial")
	n.stopAgent() // SIGKILL
	c.startAgent(n)
	c.nicIs("the agent was killed in the trial", n, "eth0", "refused the agent ended before")
	c.showsRefusal(n, "the agent ended before")
	line("after that")
}

// showsRefusal fails unless the agent's status has the NIC as a problem, with the reason and what to do. The node serves nevertheless.
func (c *podCluster) showsRefusal(n *podNode, why string) {
	c.t.Helper()
	c.until("the status of the agent", func() error {
		st, err := control.FetchStatus(c.t.Context(), n.status(), false)
		if err != nil {
			return err
		}
		for _, p := range st.Problems {
			if p.Object == "NIC" && p.State == status.Refused && strings.Contains(p.Text, why) && strings.Contains(p.Text, "remove "+filepath.Join(n.dir, "nic.json")) && st.Ready && !st.Healthy {
				c.t.Log(p)
				return nil
			}
		}
		return fmt.Errorf("ready %t, problems %v", st.Ready, st.Problems)
	})
}
