package realvpp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/memif"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/vpp"
)

const memifPlugin = "memif_plugin.so"

func asksMemif(r *protocol.Request) { r.Interface = protocol.InterfaceMemif }

// memifPod is the program of a pod with a memif interface: a second VPP, which joins the memif with a namespace whose programs are then the pod's.
// All that it knows of its network is the description beside the socket.
type memifPod struct {
	process
	pod *podOf
}

// runMemif starts the program of a pod.
func (c *podCluster) runMemif(p *podOf) *memifPod {
	c.t.Helper()
	m := &memifPod{pod: p}
	m.path, m.dir, m.plugins = p.node.path, filepath.Join(c.dir, "memif-"+p.req.Pod.Name), []string{memifPlugin}
	c.check(os.Mkdir(m.dir, 0o700))
	var err error
	m.ns, err = newNetns()
	c.check(err)
	c.t.Cleanup(func() { m.kill(); m.ns.close() })
	c.check(m.start())
	folder := filepath.Dir(p.result.Interface.Socket)
	text, err := os.ReadFile(filepath.Join(folder, "eth0.json"))
	c.check(err)
	var d podnet.MemifDescription
	c.check(json.Unmarshal(text, &d))
	c.check(p.ip(fmt.Sprintf("link add eth0 address %s mtu %d type veth peer name app netns %s\nlink set eth0 up\nlink set lo up\n", d.MAC, d.MTU, m.ns.path)))
	c.check(m.ns.ip("link set app up\n"))
	for _, a := range d.Addresses {
		c.check(p.ip(fmt.Sprintf("addr add %s dev eth0 nodad\n", a)))
	}
	for gateway, mac := range d.Neighbours {
		c.check(p.ip(fmt.Sprintf("route add %s dev eth0 scope link\nneigh add %s lladdr %s dev eth0 nud permanent\n", gateway, gateway, mac)))
	}
	for _, r := range d.Routes {
		c.check(p.ip(fmt.Sprintf("route add %s via %s dev eth0\n", r.Destination, r.Gateway)))
	}
	p.do(func() { err = wholeChecksums("eth0") })
	c.check(err)
	c.check(m.join(c.t.Context(), filepath.Join(folder, d.Socket), d.ID))
	return m
}

// join connects the memif with the namespace, frame by frame.
func (m *memifPod) join(ctx context.Context, socket string, id uint32) error {
	conn := plain(vpp.Config{Socket: m.socket()})
	defer conn.close()
	if err := conn.wait(); err != nil {
		return err
	}
	do := func(msg api.Message) (api.Message, error) {
		r := conn.conn.Do(ctx, vpp.Call{Msg: msg})[0]
		return r.Msg, r.Err
	}
	file, err := do(&memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: ^uint32(0), SocketFilename: socket})
	if err != nil {
		return err
	}
	one, err := do(&memif.MemifCreateV2{Role: memif.MEMIF_ROLE_API_SLAVE, SocketID: file.(*memif.MemifSocketFilenameAddDelV2Reply).SocketID, ID: id})
	if err != nil {
		return err
	}
	two, err := do(&af_packet.AfPacketCreateV3{Mode: af_packet.AF_PACKET_API_MODE_ETHERNET, HostIfName: "app", UseRandomHwAddr: true, NumRxQueues: 1, NumTxQueues: 1})
	if err != nil {
		return err
	}
	a, b := one.(*memif.MemifCreateV2Reply).SwIfIndex, two.(*af_packet.AfPacketCreateV3Reply).SwIfIndex
	for _, msg := range []api.Message{
		up(a), up(b), &l2.SwInterfaceSetL2Xconnect{RxSwIfIndex: a, TxSwIfIndex: b, Enable: true}, &l2.SwInterfaceSetL2Xconnect{RxSwIfIndex: b, TxSwIfIndex: a, Enable: true},
	} {
		if _, err := do(msg); err != nil {
			return err
		}
	}
	return nil
}

// sockets are the memif sockets of a node's VPP, without its default one.
func (n *podNode) sockets(t *testing.T) (out []string) {
	t.Helper()
	conn := plain(vpp.Config{Socket: n.socket()})
	defer conn.close()
	if err := conn.wait(); err != nil {
		t.Fatal(err)
	}
	r := conn.conn.Do(t.Context(), vpp.Call{Dump: true, Msg: &memif.MemifSocketFilenameDump{}})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, d := range r.Details {
		if d := d.(*memif.MemifSocketFilenameDetails); d.SocketID != 0 {
			out = append(out, d.SocketFilename)
		}
	}
	return out
}

// TestVPPPodNetworkMemif: pods with a memif interface talk to pods on veth, to Services and to nodes, in both directions, under the same policies,
// and survive what other pods survive.
func TestVPPPodNetworkMemif(t *testing.T) {
	path := theVPP(t)
	c := newPodCluster(t, clusterShape{plugins: []string{memifPlugin}})
	one := c.addNode(path, 1)
	if isSimulated(path) {
		c.refuses(one, protocol.InterfaceMemif, "memif_create_v2") // with host interfaces
		return
	}
	two := c.addNode(path, 2)
	a, far := c.attach(one, "a", "client"), c.attach(two, "far", "web")
	before := c.settled(one)
	m := c.attach(one, "m", "web", asksMemif)
	c.isMemif(m)
	program := c.runMemif(m)
	c.serve(a.netns, "a", 8080)
	c.serve(m.netns, "m", 8080)
	c.serve(far.netns, "far", 8080)
	c.serve(one.ns, one.name, 9000)
	c.serve(two.ns, two.name, 9000)
	c.mesh("memif", a, m, far)
	c.service(m)
	c.reaches("pod to a Service of a memif pod", a.netns, "10.96.0.10:80", "m sees "+a.addr(false).String())
	c.reaches("node to a Service of a memif pod", one.ns, "10.96.0.10:80", "m sees")
	c.reaches("memif pod to its own Service", m.netns, "10.96.0.10:80", "m sees")
	c.service(far)
	c.reaches("memif pod to a Service", m.netns, "10.96.0.10:80", "far sees "+m.addr(false).String())

	c.write("policy.yaml", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: default}\nspec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]}\n")
	c.until("the policy is enforced", func() error {
		if _, err := ask(a.netns, hostPort(m.addr(false), 8080), 300*time.Millisecond); err == nil {
			return errors.New("a denied pod still gets an answer")
		}
		return nil
	})
	friend := c.attach(one, "friend", "friend", asksMemif)
	c.runMemif(friend)
	c.reaches("an allowed memif pod", friend.netns, hostPort(m.addr(false), 8080), "m sees "+friend.addr(false).String())
	c.silent("a denied pod", a.netns, hostPort(m.addr(false), 8080))
	c.silent("a denied pod, IPv6", a.netns, hostPort(m.addr(true), 8080))
	c.reaches("a memif pod to a pod without policies", m.netns, hostPort(a.addr(false), 8080), "a sees")
	c.check(one.client().Check(t.Context(), m.req, m.result))
	c.survive(one, friend, a, m, far)

	program.kill() // a program that ends and starts again connects again
	c.check(program.start())
	c.check(program.join(t.Context(), m.result.Interface.Socket, 0))
	c.reaches("a program that was restarted", friend.netns, hostPort(m.addr(false), 8080), "m sees")

	for range 2 {
		c.check(one.client().Delete(t.Context(), m.req))
	}
	c.check(one.client().Collect(t.Context(), []protocol.Attachment{a.req.Attachment})) // the DEL of friend was lost
	c.removeManifest("policy.yaml")
	c.removeManifest("service.yaml")
	c.removeManifest("pod-m.yaml")
	c.removeManifest("pod-friend.yaml")
	c.until("nothing is left", func() error { return differ(before, one.left(t)) })
	if left := one.sockets(t); len(left) > 0 {
		t.Errorf("sockets left in VPP: %q", left)
	}
	if left, _ := filepath.Glob(filepath.Join(one.dir, "memif", "*")); len(left) > 0 {
		t.Errorf("folders left: %q", left)
	}
}

// isMemif fails unless the result is that of a memif interface, and the namespace has none.
func (c *podCluster) isMemif(p *podOf) {
	c.t.Helper()
	i := p.result.Interface
	info, err := os.Stat(i.Socket)
	if err != nil || info.Mode().Type() != fs.ModeSocket || p.result.Host != nil || i.Sandbox != p.path || i.Name != "eth0" || len(p.result.IPs) != 2 {
		c.t.Errorf("result %+v, socket: %v, %v", p.result, info, err)
	}
	c.t.Logf("socket: %v", info.Mode())
	p.do(func() {
		if _, err := net.InterfaceByName("eth0"); err == nil {
			c.t.Error("the namespace has an interface")
		}
	})
}

// refuses fails unless VPP refuses a kind of interface, and the reason is in the log. Nothing is left.
func (c *podCluster) refuses(n *podNode, kind, message string) {
	c.t.Helper()
	r := protocol.Request{
		Attachment: protocol.Attachment{ContainerID: "m", IfName: "eth0"}, Netns: n.ns.path, Pod: protocol.Pod{Namespace: "default", Name: "m", UID: "m"}, Interface: kind,
	}
	c.until("STATUS", func() error { return n.client().Status(c.t.Context()) })
	before := n.left(c.t)
	ctx, stop := context.WithTimeout(c.t.Context(), 3*time.Second)
	defer stop()
	if _, err := n.client().Add(ctx, r); err == nil {
		c.t.Errorf("ADD of a pod with a %s succeeds", kind)
	}
	c.until("the reason in the log", func() error {
		for line := range strings.Lines(c.tails()) {
			if strings.Contains(line, "verb=ADD") && strings.Contains(line, message) {
				c.t.Log(line)
				return nil
			}
		}
		return errors.New("ADD does not name the request that VPP refuses")
	})
	c.check(n.client().Delete(c.t.Context(), r))
	c.until("nothing is left", func() error { return differ(before, n.left(c.t)) })
}
