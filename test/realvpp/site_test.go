package realvpp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/guestbook"
)

// site is a cluster of programs: each node has a VPP and an agent, each pod a network namespace, and there is a world outside.
//
//	namespaces of pods        one of the node                    the same of another node
//	eth0 ── veth ──┐          ┌────────────────┐   VXLAN         ┌──────────┐
//	eth0 ── veth ──┼ af_packet│ VPP ◀─── agent │─ ─ ─ ─ ─ ─ ─ ─ ─│ VPP      │
//	eth0 ── veth ──┘          └───────┬────────┘                 └────┬─────┘
//	                                  └── uplinks ── br0 ─────────────┘
//	                                                  └ clients and servers outside
//
// The site makes in VPP what a CNI would make: interfaces, addresses, the tunnels, routes to pods. The agents make the rest.
type site struct {
	t       *testing.T
	dir     string
	program string // contiv-agent
	nodes   []*siteNode
	hosts   map[string]*netns // namespaces of pods by NAMESPACE/NAME, and of nodes; "": the world outside
	running map[string]*exec.Cmd
	pods    []*model.Pod // that have an interface
	// agentFlags are flags of contiv-agent run beside those that every agent here has.
	agentFlags []string
}

type siteNode struct {
	*lab
	node   *model.Node
	number int
}

// abroad are addresses outside: the router's, a client's, a server's.
var abroad = struct{ router, client, server netip.Addr }{
	netip.MustParseAddr("192.168.16.100"), netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.10"),
}

// openSite makes everything but the agents and the pods' programs.
func openSite(t *testing.T, path, manifests string) *site {
	s := &site{t: t, dir: t.TempDir(), hosts: map[string]*netns{}, running: map[string]*exec.Cmd{}}
	s.program = theAgent(t)
	s.check(os.CopyFS(s.manifests(), os.DirFS(manifests)))
	changes, err := manifest.Load(s.manifests())
	s.check(err)
	world, err := newNetns()
	s.check(err)
	t.Cleanup(world.close)
	s.hosts[""] = world
	s.check(world.ip(fmt.Sprintf("link set lo up\nlink add br0 type bridge\nlink set br0 up\naddr add %s/24 dev br0\naddr add %s/32 dev lo\naddr add %s/32 dev lo\n",
		abroad.router, abroad.client, abroad.server)))
	s.check(world.set("ipv4/conf/br0/arp_announce", "2")) // it asks from its address in the nodes' network, as VPP expects
	var pods []*model.Pod
	for _, c := range changes {
		switch o := c.Object.(type) {
		case *model.Node:
			s.nodes = append(s.nodes, &siteNode{node: o})
		case *model.Pod:
			pods = append(pods, o)
		}
	}
	slices.SortFunc(s.nodes, func(a, b *siteNode) int { return cmp.Compare(a.node.Name, b.node.Name) })
	for i, n := range s.nodes {
		n.number = i + 1
		n.lab, err = openLab(path, "vxlan_plugin.so")
		if n.lab != nil {
			t.Cleanup(n.close)
		}
		s.check(err)
		s.check(n.join(world))
		s.hosts[n.node.Name] = n.ns
	}
	for _, n := range s.nodes {
		for _, other := range s.nodes {
			if other != n {
				s.check(n.meet(other))
			}
		}
	}
	for _, p := range pods {
		s.check(s.place(p))
	}
	t.Cleanup(func() {
		for name := range s.running {
			s.kill(name)
		}
	})
	return s
}

func (s *site) manifests() string { return filepath.Join(s.dir, "manifests") }

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// bridge is the VXLAN's number, that of its bridge in VPP, and of its loopback interface.
const bridge, overlayLoop = 96, "loop1"

func (n *siteNode) inner() netip.Addr { return netip.AddrFrom4([4]byte{10, 255, 0, byte(n.number)}) }

func (n *siteNode) inner6() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd00:255::%d", n.number))
}

// mac is that of the overlay, or of the uplink: all nodes' are on one wire.
func (n *siteNode) mac(kind byte) [6]byte { return [6]byte{2, 0xfe, kind, 0, 0, byte(n.number)} }

// join makes the interfaces every node has, and puts the uplink's other end into the world outside.
func (n *siteNode) join(world *netns) error {
	gateways := []netip.Prefix{netip.MustParsePrefix(gateway4 + "/32")}
	if n.dual() {
		gateways = append(gateways, netip.MustParsePrefix(gateway6+"/128"))
	}
	n.AddInterface(sim.Interface{Name: cni.Gateway, Addresses: gateways})
	n.AddInterface(sim.Interface{Name: cni.Uplink})
	n.AddInterface(sim.Interface{Name: overlayLoop})
	n.AddInterface(sim.Interface{Name: cni.Host, Unnumbered: cni.Gateway})
	if n.err != nil {
		return n.err
	}
	stack := n.pairs[cni.Host]
	own := hostMAC(stack)
	if err := n.ns.settle(peerName(stack), own, vppMAC(stack), n.node.InternalIPs); err != nil {
		return err
	}
	if err := n.ns.ip(fmt.Sprintf("addr add %s/32 dev eth0\nroute add %s via %s dev eth0 onlink src %s\n", hop, n.node.PodCIDRs[0], gateway4, hop)); err != nil {
		return err
	}
	peer := peerName(n.pairs[cni.Uplink])
	err := errors.Join(
		n.ns.ip(fmt.Sprintf("link set %s netns %s\n", peer, world.path)),
		world.ip(fmt.Sprintf("link set %s down\nlink set %s name %s\nlink set %s master br0 up\n", peer, peer, n.node.Name, n.node.Name)),
	)
	world.do(func() { err = errors.Join(err, wholeChecksums(n.node.Name)) })
	n.moved[cni.Host], n.moved[cni.Uplink] = &moved{stack, n.ns, "eth0"}, &moved{n.pairs[cni.Uplink], world, n.node.Name}
	return errors.Join(err, n.wireUp())
}

// end is what a crash of VPP does.
func (n *siteNode) end() {
	n.plain.close()
	n.kill()
}

// begin starts VPP again and makes in it what a CNI would make: interfaces, routes, and tunnels to the others.
func (s *site) begin(n *siteNode) error {
	err := n.boot()
	if err == nil {
		err = n.wireUp()
	}
	for _, other := range s.nodes {
		if other != n && err == nil {
			err = n.meet(other)
		}
	}
	return err
}

// dual reports that pods have addresses of both families.
func (n *siteNode) dual() bool { return len(n.node.PodCIDRs) > 1 }

// wireUp gives the uplink, the host and the overlay what they have beside an interface.
func (n *siteNode) wireUp() error {
	uplinkIf, overlay, host := n.index[cni.Uplink], n.index[overlayLoop], n.index[cni.Host]
	node := netip.PrefixFrom(n.node.InternalIPs[0], 24)
	calls := []api.Message{
		&interfaces.SwInterfaceSetMacAddress{SwIfIndex: uplinkIf, MacAddress: n.mac(0xaa)},
		address(uplinkIf, node),
		way(netip.PrefixFrom(netip.IPv4Unspecified(), 0), abroad.router, uplinkIf),
		known(host, hop, hostMAC(n.pairs[cni.Host])),
		way(netip.PrefixFrom(hop, 32), hop, host), // from here the node's own processes reach its pods
		&ip.AddDelIPPuntRedirectV2{IsAdd: true, Punt: ip.PuntRedirectV2{ // what is for the node and not for VPP
			RxSwIfIndex: ^interface_types.InterfaceIndex(0), NPaths: 1, Paths: []fib_types.FibPath{step(hop, host)},
		}},
		&interfaces.SwInterfaceSetMacAddress{SwIfIndex: overlay, MacAddress: n.mac(0xbb)},
		&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: overlay, BdID: bridge, PortType: l2.L2_API_PORT_TYPE_BVI, Enable: true},
		address(overlay, netip.PrefixFrom(n.inner(), 24)),
	}
	if n.dual() {
		calls = append(calls, address(overlay, netip.PrefixFrom(n.inner6(), 64)))
	}
	_, err := n.dump(&ip.IPPuntRedirectV2Dump{SwIfIndex: ^interface_types.InterfaceIndex(0)}) // the guard of a connection wants to know them
	if err == nil {
		_, err = n.do(calls...)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.node.Name, err)
	}
	// VPP gave the kernel's device its own address. The kernel must not take the packets, too, nor answer for the node's address, which it has.
	uplink, beside := vethName(n.pairs[cni.Uplink]), n.mac(0xab)
	return errors.Join(n.ns.ip(fmt.Sprintf("link set %s address %s\n", uplink, net.HardwareAddr(beside[:]))), n.ns.set("ipv4/conf/"+uplink+"/arp_ignore", "8"))
}

// meet makes the way to another node's pods.
func (n *siteNode) meet(other *siteNode) error {
	replies, err := n.do(&vxlan.VxlanAddDelTunnelV3{
		IsAdd: true, Instance: uint32(other.number), SrcAddress: ip_types.NewAddress(n.node.InternalIPs[0].AsSlice()),
		DstAddress: ip_types.NewAddress(other.node.InternalIPs[0].AsSlice()), Vni: bridge, DecapNextIndex: ^uint32(0),
		McastSwIfIndex: ^interface_types.InterfaceIndex(0),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", n.node.Name, err)
	}
	tunnel, overlay := replies[0].Msg.(*vxlan.VxlanAddDelTunnelV3Reply).SwIfIndex, n.index[overlayLoop]
	calls := []api.Message{
		up(tunnel),
		&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: tunnel, BdID: bridge, Shg: 1, Enable: true},
		&l2.L2fibAddDel{IsAdd: true, Mac: other.mac(0xbb), BdID: bridge, SwIfIndex: tunnel, StaticMac: true},
	}
	inners := []netip.Addr{other.inner()}
	if n.dual() {
		inners = append(inners, other.inner6())
	}
	for i, inner := range inners {
		calls = append(calls, known(overlay, inner, other.mac(0xbb)), way(other.node.PodCIDRs[i], inner, overlay))
	}
	if _, err = n.do(calls...); err != nil {
		return fmt.Errorf("%s: %w", n.node.Name, err)
	}
	return nil
}

// address, known, step and way are requests for an address of an interface, a neighbour, a path and a route.
func address(i interface_types.InterfaceIndex, p netip.Prefix) api.Message {
	return &interfaces.SwInterfaceAddDelAddress{SwIfIndex: i, IsAdd: true, Prefix: ip_types.AddressWithPrefix(prefix(p))}
}

func known(i interface_types.InterfaceIndex, a netip.Addr, mac [6]byte) api.Message {
	return &ip_neighbor.IPNeighborAddDel{IsAdd: true, Neighbor: ip_neighbor.IPNeighbor{
		SwIfIndex: i, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, MacAddress: mac, IPAddress: ip_types.NewAddress(a.AsSlice()),
	}}
}

func step(via netip.Addr, i interface_types.InterfaceIndex) fib_types.FibPath {
	p := fib_types.FibPath{SwIfIndex: uint32(i), Weight: 1}
	p.Nh.Address = ip_types.NewAddress(via.AsSlice()).Un
	if via.Is6() {
		p.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
	}
	return p
}

func way(to netip.Prefix, via netip.Addr, i interface_types.InterfaceIndex) api.Message {
	return &ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{Prefix: prefix(to), NPaths: 1, Paths: []fib_types.FibPath{step(via, i)}}}
}

// overlayMTU leaves room for the headers of VXLAN.
const overlayMTU = 1450

// place gives a pod its namespace and its interface.
func (s *site) place(p *model.Pod) error {
	for _, n := range s.nodes {
		if n.node.Name != p.NodeName {
			continue
		}
		door := cni.PodInterface(p.ID)
		n.AddInterface(sim.Interface{Name: door, Tag: p.ID.String(), Unnumbered: cni.Gateway})
		err := n.err
		for _, a := range p.IPs {
			err = errors.Join(err, n.AddRoute(sim.Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Paths: []sim.Path{{Interface: door, Via: a}}}))
		}
		if err != nil {
			return err
		}
		host, err := n.inhabit(door, p.IPs...)
		if err != nil {
			return err
		}
		s.hosts[p.ID.String()], s.pods = host, append(s.pods, p)
		return host.ip(fmt.Sprintf("link set eth0 mtu %d\n", overlayMTU))
	}
	return fmt.Errorf("pod %s is on no node there is", p.ID)
}

// start runs a program in a namespace; what it says is in a file of its name.
func (s *site) start(name string, at *netns, env string, argv ...string) {
	s.t.Helper()
	out, err := os.OpenFile(s.log(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	s.check(err)
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when the namespace's thread ends
	at.do(func() { err = cmd.Start() })
	s.check(err)
	s.running[name] = cmd
}

func (s *site) log(name string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(name, "/", "_")+".log")
}

// startPod runs a role of the guestbook.
func (s *site) startPod(pod, role string) {
	s.t.Helper()
	self, err := os.Executable()
	s.check(err)
	name := pod[strings.LastIndex(pod, "/")+1:]
	s.start(pod, s.hosts[pod], guestbookRole+"="+name+" "+role, self)
}

// kill ends a program at once.
func (s *site) kill(name string) {
	if cmd := s.running[name]; cmd != nil {
		delete(s.running, name)
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	}
}

// startAgent runs the agent of a node as on a command line.
func (s *site) startAgent(n *siteNode) {
	s.t.Helper()
	s.start(n.node.Name, n.ns, "CONTIV_NONE=", append([]string{
		s.program, "run", "--manifests", s.manifests(), "--node", n.node.Name,
		"--vpp-socket", n.socket(), "--status-socket", s.status(n), "--journal", filepath.Join(s.dir, n.node.Name+".journal"), "--listen", "", "--host-interface", cni.Host,
	},
		s.agentFlags...)...)
}

func (s *site) status(n *siteNode) string { return filepath.Join(s.dir, n.node.Name+".sock") }

// acknowledged waits until the agents of some nodes, or all, have done something since and have nothing left to do.
func (s *site) acknowledged(since time.Time, names ...string) {
	s.t.Helper()
	for _, n := range s.nodes {
		if len(names) > 0 && !slices.Contains(names, n.node.Name) {
			continue
		}
		s.until("the agent of "+n.node.Name+" has done its work", func() error {
			st, err := control.FetchStatus(s.t.Context(), s.status(n), true)
			switch {
			case err != nil:
				return err
			case !st.InSync:
				return fmt.Errorf("not in sync: %s", st.Waiting)
			case len(st.History) == 0 || st.History[len(st.History)-1].At.Before(since):
				return errors.New("nothing was done yet")
			case len(st.Unwell) > 0:
				return fmt.Errorf("not configured: %+v", st.Unwell)
			}
			return nil
		})
	}
}

// until tries something again and again.
func (s *site) until(what string, try func() error) {
	s.t.Helper()
	for end := time.Now().Add(2 * patience); ; wait(s.t.Context(), 50*time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s%s: not within %s: %v", s.tails(), what, 2*patience, err)
		}
	}
}

// tails is the end of what the programs said.
func (s *site) tails() string {
	text := ""
	for name := range s.running {
		if b, err := os.ReadFile(s.log(name)); err == nil && len(b) > 0 {
			text += "\n-- " + name + "\n" + string(b[max(0, len(b)-2000):])
		}
	}
	return text + "\n"
}

// dial connects from a pod, or from outside; a silent answer is an error after limit.
func (s *site) dial(from, network, to string, limit time.Duration) (conn net.Conn, err error) {
	d := net.Dialer{Timeout: limit}
	if from == "" {
		d.LocalAddr = &net.TCPAddr{IP: abroad.client.AsSlice()}
	}
	ended, failed := s.hosts[from].beside(func() { conn, err = d.Dial(network, to) })
	if failed != nil {
		return nil, failed
	}
	<-ended
	return conn, err
}

// get is one HTTP request on a new connection.
func (s *site) get(from, to, path string, limit time.Duration) (string, error) {
	conn, err := s.dial(from, "tcp", to, limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience)) // a connection has deadlines
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return "", err
	}
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", reply.Status, body)
	}
	return strings.TrimSpace(string(body)), err
}

// resolve asks the cluster's DNS.
func (s *site) resolve(from, network, name string, limit time.Duration) (string, error) {
	ctx, stop := context.WithTimeout(s.t.Context(), limit)
	defer stop()
	return guestbook.Lookup(ctx, func() (net.Conn, error) { return s.dial(from, network, guestbook.ClusterDNS, limit) }, name)
}

// write changes one manifest at once; "" removes it.
func (s *site) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.manifests(), name)
	if text == "" {
		s.check(os.Remove(path))
		return
	}
	s.check(os.WriteFile(path+"~", []byte(text), 0o600))
	s.check(os.Rename(path+"~", path))
}

func (s *site) read(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.manifests(), name))
	s.check(err)
	return string(b)
}
