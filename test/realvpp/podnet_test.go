package realvpp

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// podCluster is some nodes whose pods are attached by CNI requests alone: each node is a network namespace with a NIC, a VPP and an agent. Nothing in
// VPP, and nothing in the kernel but the NIC, is configured by hand.
type podCluster struct {
	t *testing.T
	clusterShape
	dir     string
	program string
	plugin  string
	world   *netns // the network between the nodes
	nodes   []*podNode
	pods    map[string]*podOf
	relayed func(*podNode) // may set the node's relay; nil: nothing does
}

// podOf is the namespace of a pod.
type podOf struct {
	*netns
	node   *podNode
	req    protocol.Request
	result *protocol.Result
}

func (c *podCluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s%v", c.tails(), err)
	}
}

// tails is the end of what the agents said. Failures have it first: the end of a test's output then says what failed.
func (c *podCluster) tails() string {
	out := ""
	for _, n := range c.nodes {
		if b, err := os.ReadFile(n.log()); err == nil {
			out += "\n-- " + n.name + "\n" + string(b[max(0, len(b)-4000):])
		}
	}
	return out + "\n"
}

func (n *podNode) log() string    { return filepath.Join(n.dir, "agent.log") }
func (n *podNode) status() string { return filepath.Join(n.dir, "agent.sock") }

// lists and programs are the runtime's folders of the node.
func (n *podNode) lists() string    { return filepath.Join(n.dir, "net.d") }
func (n *podNode) programs() string { return filepath.Join(n.dir, "bin") }

func (c *podCluster) manifests() string { return filepath.Join(c.dir, "manifests") }

// write changes a manifest at once.
func (c *podCluster) write(name, text string) {
	c.t.Helper()
	at := filepath.Join(c.manifests(), name)
	c.check(os.WriteFile(at+"~", []byte(text), 0o600))
	c.check(os.Rename(at+"~", at))
}

func (c *podCluster) startAgent(n *podNode) {
	c.t.Helper()
	c.check(c.runAgent(n))
}

func (c *podCluster) runAgent(n *podNode) error {
	out, err := os.OpenFile(n.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	n.agent = exec.Command(c.program, append([]string{
		"run", "--cni", "--cni-state", n.dir, "--cni-conf-dir", n.lists(), "--cni-bin-dir", n.programs(), "--cni-program", c.plugin, "--manifests", c.manifests(), "--node", n.name, "--vpp-socket", cmp.Or(n.relay, n.socket()),
		"--status-socket", n.status(), "--journal", filepath.Join(n.dir, "journal"), "--listen", "", "--healthz-bind-address", "", "--service-cidr", c.serviceCIDRs(),
	}, slices.Concat(c.flags, n.flags)...)...)
	n.agent.Stdout, n.agent.Stderr = out, out
	n.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.ns.do(func() { err = n.agent.Start() })
	return err
}

func (n *podNode) stopAgent() {
	if n.agent != nil {
		_ = n.agent.Process.Kill() // it may have ended
		_ = n.agent.Wait()         // killed
		n.agent = nil
	}
}

// endAgent ends the agent in order.
func (n *podNode) endAgent() error {
	err := n.agent.Process.Signal(syscall.SIGTERM)
	if err == nil {
		err = n.agent.Wait()
	}
	n.agent = nil
	return err
}

// version is VPP's, like 25.10-release.
func (n *podNode) version() string {
	conn := plain(vpp.Config{Socket: n.socket()})
	defer conn.close()
	if conn.wait() != nil {
		return "unknown"
	}
	return strings.TrimPrefix(conn.conn.State().Version, "v")
}

func (n *podNode) client() *protocol.Client { return &protocol.Client{Socket: n.status()} }

// until tries something again and again.
func (c *podCluster) until(what string, try func() error) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; wait(c.t.Context(), 50*time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s%s: not within %s: %v", c.tails(), what, patience, err)
		}
	}
}

// object is the manifest of a pod, as the API server has it before the runtime knows its address.
func (c *podCluster) object(n *podNode, pod, app, status string) {
	c.t.Helper()
	c.write("pod-"+pod+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, labels: {app: %s}}\nspec: {nodeName: %s, containers: [{name: c, image: x}]}\nstatus: {%s}\n", pod, app, n.name, status))
}

// attach adds a pod as a container runtime does. Changes of its request are made first.
func (c *podCluster) attach(n *podNode, pod, app string, changes ...func(*protocol.Request)) *podOf {
	c.t.Helper()
	ns, err := newNetns()
	c.check(err)
	p := &podOf{netns: ns, node: n, req: protocol.Request{
		Attachment: protocol.Attachment{ContainerID: strings.Repeat("0", 60) + pod, IfName: "eth0"}, Netns: ns.path, Pod: protocol.Pod{Namespace: "default", Name: pod, UID: pod},
	}}
	for _, change := range changes {
		change(&p.req)
	}
	c.object(n, pod, app, "phase: Pending")
	c.until("ADD of "+pod, func() error {
		p.result, err = n.client().Add(c.t.Context(), p.req)
		return err
	})
	c.object(n, pod, app, p.status())
	c.pods[pod] = p
	c.t.Cleanup(func() {
		if c.pods[pod] == p {
			ns.close()
		}
	})
	return p
}

// serve answers each connection to a port, in both families, with a name and the client's address.
func (c *podCluster) serve(at *netns, name string, on int) {
	c.t.Helper()
	for _, family := range []string{"tcp4", "tcp6"} {
		c.accept(at, family, on, func(conn net.Conn) {
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			_, _ = fmt.Fprintf(conn, "%s sees %s\n", name, host) // the client may be gone
		})
	}
}

// repeats sends back each line that it receives.
func (c *podCluster) repeats(at *netns, family string, on int) {
	c.t.Helper()
	c.accept(at, family, on, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for line, err := in.ReadString('\n'); err == nil; line, err = in.ReadString('\n') {
			_, _ = conn.Write([]byte(line)) // the client may be gone
		}
	})
}

// accept listens at a port until the test ends. Each connection is closed when its answer returns.
func (c *podCluster) accept(at *netns, family string, on int, answer func(net.Conn)) {
	c.t.Helper()
	var l net.Listener
	var err error
	at.do(func() { l, err = net.Listen(family, fmt.Sprintf(":%d", on)) })
	c.check(err)
	c.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
}

// ask connects, and returns the line that the server sends.
func ask(from *netns, to string, limit time.Duration) (line string, err error) {
	ended, failed := from.beside(func() {
		var conn net.Conn
		if conn, err = (&net.Dialer{Timeout: limit}).Dial("tcp", to); err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(limit)) // a connection has deadlines
		line, err = bufio.NewReader(conn).ReadString('\n')
	})
	if failed != nil {
		return "", failed
	}
	<-ended
	return strings.TrimSpace(line), err
}

// reaches fails unless a client gets an answer with a text.
func (c *podCluster) reaches(what string, from *netns, to, want string) {
	c.t.Helper()
	c.answers(what, from, to, want)
	c.t.Logf("%s: ok", what)
}

// answers is reaches without a line in the log.
func (c *podCluster) answers(what string, from *netns, to, want string) {
	c.t.Helper()
	c.until(what, func() error {
		line, err := ask(from, to, 3*time.Second)
		if err == nil && !strings.Contains(line, want) {
			err = fmt.Errorf("got %q, want %q", line, want)
		}
		return err
	})
}

// allowFriend lets only friends reach the pod b, and attaches one; a is none.
func (c *podCluster) allowFriend(n *podNode, a, b *podOf) *podOf {
	c.t.Helper()
	c.write("policy.yaml", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: default}\nspec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]}\n")
	c.until("the policy is enforced", func() error {
		if _, err := ask(a.netns, hostPort(b.addr(false), 8080), 300*time.Millisecond); err == nil {
			return errors.New("a denied pod still gets an answer")
		}
		return nil
	})
	return c.attach(n, "friend", "friend")
}

func (c *podCluster) silent(what string, from *netns, to string) {
	c.t.Helper()
	if line, err := ask(from, to, 500*time.Millisecond); err == nil {
		c.t.Errorf("%s: got %q", what, line)
	}
}

func hostPort(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

// TestVPPPodNetwork attaches pods by CNI requests alone, and sends packets on every path.
func TestVPPPodNetwork(t *testing.T) {
	c := openPodCluster(t, theVPP(t))
	one, two := c.nodes[0], c.nodes[1]
	for _, n := range c.nodes {
		c.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
		c.until("the network configuration list of "+n.name, func() error { return exists(filepath.Join(n.lists(), "10-contiv.conflist")) })
		c.check(exists(filepath.Join(n.programs(), "contiv-cni")))
	}
	a, b, far := c.attach(one, "a", "client"), c.attach(one, "b", "web"), c.attach(two, "far", "web")
	c.serve(b.netns, "b", 8080)
	c.serve(far.netns, "far", 8080)
	c.serve(one.ns, "node-1", 9000)
	c.serve(two.ns, "node-2", 9000)
	c.serve(c.world, "world", 7000)
	for _, v6 := range []bool{false, true} {
		c.reaches("pod to pod of its node", a.netns, hostPort(b.addr(v6), 8080), "b sees "+a.addr(v6).String())
		c.reaches("pod to pod of another node", a.netns, hostPort(far.addr(v6), 8080), "far sees "+a.addr(v6).String())
		c.reaches("node to its pod", one.ns, hostPort(b.addr(v6), 8080), "b sees")
		c.reaches("node to pod of another node", one.ns, hostPort(far.addr(v6), 8080), "far sees")
	}
	c.reaches("pod to its node", a.netns, one.addr+":9000", "node-1 sees "+a.addr(false).String())
	c.reaches("pod to another node", a.netns, two.addr+":9000", "node-2 sees "+a.addr(false).String())
	c.reaches("pod to the outside", a.netns, "198.51.100.10:7000", "world sees "+one.addr)
	c.service(b, far)
	c.reaches("pod to Service", a.netns, "10.96.0.10:80", "sees "+a.addr(false).String())
	c.reaches("node to Service", one.ns, "10.96.0.10:80", "sees")
	c.translates(a)

	friend := c.allowFriend(one, a, b)
	c.reaches("an allowed pod", friend.netns, hostPort(b.addr(false), 8080), "b sees")
	c.silent("a denied pod", a.netns, hostPort(b.addr(false), 8080))
	c.silent("a denied pod, IPv6", a.netns, hostPort(b.addr(true), 8080))
	c.survive(one, friend, a, b, far)
	c.pastVPP(a)
	c.remove(one, friend)
	c.keepsLinks(one)
}

// pastVPP sends frames from a pod to the kernel's device at VPP's end of its link.
func (c *podCluster) pastVPP(p *podOf) {
	c.t.Helper()
	var device *net.Interface
	var err error
	p.node.ns.do(func() { device, err = net.InterfaceByName(p.result.Host.Name) })
	c.check(err)
	mac := device.HardwareAddr.String()
	c.check(p.ip(fmt.Sprintf("neigh replace 169.254.1.1 lladdr %s dev eth0 nud permanent\nneigh replace fd69:254:1::1 lladdr %s dev eth0 nud permanent\n", mac, mac)))
	c.silent("a pod that sends to the kernel's device", p.netns, p.node.addr+":9000")
	c.silent("a pod that sends to the kernel's device, IPv6", p.netns, "[2001:db8:16::1]:9000")
	c.check(p.ip(fmt.Sprintf("neigh replace 169.254.1.1 lladdr %s dev eth0 nud permanent\n", vppEnd)))
	c.reaches("pod to its node again", p.netns, p.node.addr+":9000", "node-1 sees")
}

// vppEnd is the MAC address of VPP's interfaces to pods.
const vppEnd = "02:ca:c0:00:00:01"

// keepsLinks fails unless a node has its links after the removal of a pod.
func (c *podCluster) keepsLinks(n *podNode) {
	c.t.Helper()
	var links []byte
	n.ns.do(func() { links, _ = exec.Command("ip", "-o", "link").CombinedOutput() })
	for _, name := range []string{"contiv-host", "contiv-vxlan", "cv-host", "cv-vxlan"} {
		if !strings.Contains(string(links), name) {
			c.t.Errorf("the link %s is gone:\n%s", name, links)
		}
	}
}

// inTime skips the test unless VPP's clock keeps time (see startOnTime).
func (c *podCluster) inTime(n *podNode) {
	c.t.Helper()
	if isSimulated(n.path) {
		return
	}
	conn := plain(vpp.Config{Socket: n.socket(), Guard: &vpp.Guard{AllowDisable: true}})
	defer conn.close()
	c.check(conn.wait())
	rate, err := conn.clockRate()
	c.check(err)
	if !inTime(rate) {
		c.t.Skipf("vpp's clock runs at %.2f of the right speed: the machine was busy when VPP started", rate)
	}
}

// translates fails unless NAT44 on a pod's interface is arranged as the agent arranges it for pods: the role inside, and the node of both roles.
func (c *podCluster) translates(p *podOf) {
	c.t.Helper()
	conn := plain(vpp.Config{Socket: p.node.socket()})
	defer conn.close()
	c.check(conn.wait())
	name := p.inVPP(c.t, conn)
	replies := conn.conn.Do(c.t.Context(), vpp.Call{Msg: descriptor.ShowFeatures(name)}, vpp.Call{Dump: true, Msg: &interfaces.SwInterfaceDump{SwIfIndex: noInterface}},
		vpp.Call{Dump: true, Msg: &nat44_ed.Nat44InterfaceDump{}})
	for _, r := range replies {
		c.check(r.Err)
	}
	arcs, err := descriptor.NodesOn(replies[0])
	c.check(err)
	nodes := slices.DeleteFunc(slices.Clone(arcs["ip4-unicast"]), func(n string) bool { return !strings.HasPrefix(n, "nat") })
	if !slices.Equal(nodes, []string{"nat44-ed-classify"}) {
		c.t.Errorf("NAT44's nodes on %s: %q", name, nodes)
	}
	names := map[interface_types.InterfaceIndex]string{}
	for _, d := range replies[1].Details {
		names[d.(*interfaces.SwInterfaceDetails).SwIfIndex] = d.(*interfaces.SwInterfaceDetails).InterfaceName
	}
	roles := map[string]nat_types.NatConfigFlags{}
	for _, d := range replies[2].Details {
		roles[names[d.(*nat44_ed.Nat44InterfaceDetails).SwIfIndex]] = d.(*nat44_ed.Nat44InterfaceDetails).Flags & (nat_types.NAT_IS_INSIDE | nat_types.NAT_IS_OUTSIDE)
	}
	if roles[name] != nat_types.NAT_IS_INSIDE {
		c.t.Errorf("%s is not inside alone: %v", name, roles)
	}
}

// service makes a Service of two pods, as the API server does when it knows their addresses.
func (c *podCluster) service(pods ...*podOf) {
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: default}\nspec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP}]}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints:\n"
	for _, p := range pods {
		text += fmt.Sprintf("- {addresses: [%s], nodeName: %s, conditions: {ready: true}, targetRef: {kind: Pod, namespace: default, name: %s}}\n", p.addr(false), p.node.name, p.req.Pod.Name)
	}
	c.write("service.yaml", text)
}

// survive kills the agent and then VPP: nothing stops without the agent, and everything returns with VPP.
func (c *podCluster) survive(n *podNode, friend, denied, b, far *podOf) {
	c.t.Helper()
	n.stopAgent()
	c.reaches("without an agent", friend.netns, hostPort(b.addr(false), 8080), b.req.Pod.Name+" sees")
	c.startAgent(n)
	c.until("STATUS after a restart of the agent", func() error { return n.client().Status(c.t.Context()) })
	st, err := control.FetchStatus(c.t.Context(), n.status(), true)
	c.check(err)
	for _, txn := range st.History {
		if txn.Writes > 0 {
			c.t.Errorf("%sa restarted agent writes: %+v", c.tails(), txn)
		}
	}
	c.reaches("after a restart of the agent", friend.netns, hostPort(b.addr(false), 8080), b.req.Pod.Name+" sees")
	n.kill()
	c.check(n.start())
	begin := time.Now()
	leaks := 0
	for {
		if _, err := ask(denied.netns, hostPort(b.addr(false), 8080), 20*time.Millisecond); err == nil {
			leaks++
		}
		if _, err := ask(friend.netns, hostPort(b.addr(false), 8080), 100*time.Millisecond); err == nil {
			break
		}
		if time.Since(begin) > patience {
			c.t.Fatalf("%safter a restart of VPP no packet arrives", c.tails())
		}
	}
	c.t.Logf("from VPP's socket to the first connection: %s, %d denied connections answered", time.Since(begin).Round(time.Millisecond), leaks)
	if leaks > 0 {
		c.t.Errorf("%d connections that policies deny were answered after a restart of VPP", leaks)
	}
	c.reaches("across nodes after a restart of VPP", friend.netns, hostPort(far.addr(false), 8080), far.req.Pod.Name+" sees")
	c.reaches("IPv6 after a restart of VPP", friend.netns, hostPort(b.addr(true), 8080), b.req.Pod.Name+" sees")
	c.translates(denied)
	c.silent("a denied pod after a restart of VPP", denied.netns, hostPort(b.addr(false), 8080))
}

// remove deletes a pod twice, and looks for what is left.
func (c *podCluster) remove(n *podNode, p *podOf) {
	c.t.Helper()
	r := p.req
	for range 2 {
		c.check(n.client().Delete(c.t.Context(), r))
		r.Netns = "" // as of a sandbox that no longer exists
	}
	text := n.left(c.t)
	for _, left := range []string{"default/" + p.req.Pod.Name + ":", hostName(p), p.addr(false).String() + "/", p.addr(false).String() + " ", p.addr(true).String() + "/", p.addr(true).String() + " "} {
		if strings.Contains(text, left) {
			c.t.Errorf("%q is left in\n%s", left, text)
		}
	}
	p.do(func() {
		if _, err := net.InterfaceByName("eth0"); err == nil {
			c.t.Error("eth0 is left in the namespace of the pod")
		}
	})
}
