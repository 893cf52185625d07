package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/sim"
)

// traffic is the packets between pods that follow each message to a VPP. A pod takes part from its acknowledged ADD to the first request that removes
// its sandbox.
type traffic struct {
	mu      sync.Mutex
	places  []*place            // by number of the node
	live    map[string]*member  // by name of the pod
	passed  map[string]ends     // packets that have passed, by "ATTACHMENT FAMILY ATTACHMENT": they must pass until an end of theirs is removed, or a VPP on their path
	has     map[string]bool     // pods whose interface VPP has had since its start
	had     map[netip.Addr]bool // addresses that clients have had
	next    int                 // of the questions about Services
	past    bool                // the API server has an earlier state, or may have: its pods may be closed, and its endpoints gone
	late    bool                // the API server's changes are late: an endpoint may be gone
	packets map[string]int
	bad     []error
}

// place is a VPP.
type place struct {
	vpp  *sim.VPP
	open func(namespace string, to netip.AddrPort, endpoint string) // a connection of a pod
	of   map[string][]string                                        // interfaces of pods
	near map[string]bool                                            // VPP's neighbours, by "INTERFACE ADDRESS"; nil: each address is one
	far  string                                                     // interface to other nodes; "": none
	// sends and takes say which packets to and from pods of other nodes pass this VPP, as passed has them. They change with this VPP alone: another one must not get a
	// packet while it carries out a message.
	sends, takes map[string]bool
}

// ends are the pods of a packet.
type ends struct{ from, to string }

// member is the sandbox of a pod that takes part.
type member struct {
	at    protocol.Attachment
	netns string // ""; no kernel has its connections
	addrs []netip.Addr
}

func newTraffic() *traffic {
	return &traffic{live: map[string]*member{}, passed: map[string]ends{}, has: map[string]bool{}, had: map[netip.Addr]bool{}, packets: map[string]int{}}
}

// join lets a pod take part.
func (t *traffic) join(p *pod, req *protocol.Request, addrs []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[p.name] = &member{req.Attachment, req.Netns, addrs}
	if req.Interface == protocol.InterfaceMemif {
		t.live[p.name].netns = ""
	}
	for _, a := range addrs {
		t.had[a] = t.had[a] || !isWeb(p.name)
	}
}

// mayBe sets what the API server's faults permit.
func (t *traffic) mayBe(past, late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.past, t.late = past, late
}

// leave ends a pod's part.
func (t *traffic) leave(p *pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, p.name)
	delete(t.has, p.name)
	maps.DeleteFunc(t.passed, func(_ string, e ends) bool {
		return nodeOf(e.from) != nodeOf(e.to) && (e.from == p.name || e.to == p.name)
	})
}

// forget ends the VPP of a node, while no packets are sent: the next one has nothing.
func (t *traffic) forget(node int, end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.passed, func(_ string, e ends) bool { return nodeOf(e.from) == node || nodeOf(e.to) == node })
	maps.DeleteFunc(t.has, func(name string, _ bool) bool { return nodeOf(name) == node })
	t.places[node].sends, t.places[node].takes = nil, nil
	end()
}

// isWeb reports whether the policy isolates a pod: clients alone may reach it.
func isWeb(name string) bool { return name[1]%2 == 0 }

// send sends a packet of each family from each pod to each other one by a node's VPP, and one to a Service, without a trace in VPP's sessions.
func (t *traffic) send(node int, after string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) > 0 {
		t.read(node, after)
		t.sendBy(node, after, false)
	}
}

// sendAll sends the packets of all nodes, and to all Services, while no VPP carries out a message. Also those that have not passed yet must pass.
func (t *traffic) sendAll(after string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for node := range t.places {
		t.read(node, after)
	}
	for node := range t.places {
		t.sendBy(node, after, true)
	}
}

// read reads a VPP's interfaces and neighbours, and which packets pass between it and other nodes.
func (t *traffic) read(node int, after string) {
	at := t.places[node]
	dump := at.vpp.Dump()
	at.of, at.near, at.far = interfacesOf(dump), neighboursOf(dump), farOf(dump)
	at.sends, at.takes = map[string]bool{}, map[string]bool{}
	tunnels := tunnelsOf(dump)
	for _, name := range t.names() {
		if nodeOf(name) != node {
			continue
		}
		if t.has[name] && len(at.of[name]) == 0 {
			t.bad = append(t.bad, fmt.Errorf("the interface of %s is removed after %s", name, after))
		}
		t.has[name] = len(at.of[name]) > 0
		for _, other := range t.names() {
			if nodeOf(other) == node {
				continue
			}
			for i := range min(len(t.live[name].addrs), len(t.live[other].addrs)) {
				at.sends[t.key(name, i, other)] = t.sends(at, name, t.packet(name, i, other), after)
				at.takes[t.key(other, i, name)] = at.far != "" && tunnels[nodeOf(other)] && at.unwraps(t.packet(other, i, name), at.of[name])
			}
		}
	}
}

// names are the pods that take part.
func (t *traffic) names() []string { return slices.Sorted(maps.Keys(t.live)) }

// key names a packet between pods.
func (t *traffic) key(from string, family int, to string) string {
	return fmt.Sprint(t.live[from].at, " ", family, " ", t.live[to].at)
}

// packet is the first one of a connection between pods.
func (t *traffic) packet(from string, family int, to string) sim.Packet {
	return sim.Packet{Src: t.live[from].addrs[family], Dst: t.live[to].addrs[family], Proto: model.TCP, SrcPort: 40000, DstPort: podPort}.Opening()
}

// sends reports whether VPP sends a packet of a pod to another node.
func (t *traffic) sends(at *place, from string, p sim.Packet, after string) (sent bool) {
	for _, in := range at.of[from] {
		for _, o := range at.leaves(in, p) {
			sent = sent || o.Interface == at.far
			if o.Interface == at.far && (o.Packet.Src != p.Src || o.Packet.Dst != p.Dst) {
				t.bad = append(t.bad, fmt.Errorf("a packet of %s (%s) leaves its node as %s after %s", from, &p, &o.Packet, after))
			}
		}
	}
	return sent
}

// sendBy sends the packets that a node's VPP has a part in.
func (t *traffic) sendBy(node int, after string, all bool) {
	t.dial(node, after, all)
	for _, from := range t.names() {
		for _, to := range t.names() {
			if from != to && (nodeOf(from) == node || nodeOf(to) == node && !all) {
				t.sendBetween(from, to, after, all)
			}
		}
	}
}

// passes reports whether a packet between pods passes all VPPs on its path.
func (t *traffic) passes(from string, family int, to string) (passes bool) {
	at, there := t.places[nodeOf(from)], t.places[nodeOf(to)]
	if at != there {
		return at.sends[t.key(from, family, to)] && there.takes[t.key(from, family, to)]
	}
	for _, in := range at.of[from] {
		passes = passes || at.arrives(in, t.packet(from, family, to), at.of[to])
	}
	return passes
}

// byFormer counts forbidden packets that hasFormer excuses.
const byFormer = "forbidden packets between nodes that pass by the former pod of their address"

// hasFormer reports whether the agent of another node cannot know yet that the address of a packet's sender has another pod.
func (t *traffic) hasFormer(from, to string, source netip.Addr, all bool) bool {
	return nodeOf(from) != nodeOf(to) && !all && t.had[source] && (t.late || t.past)
}

func (t *traffic) sendBetween(from, to, after string, all bool) {
	a, b := t.live[from], t.live[to]
	far := ""
	if nodeOf(from) != nodeOf(to) {
		far = " between nodes"
	}
	for i := range min(len(a.addrs), len(b.addrs)) {
		key, passes := t.key(from, i, to), t.passes(from, i, to)
		_, passed := t.passed[key]
		allowed := !isWeb(to) || !isWeb(from)
		switch {
		case !allowed && passes && t.hasFormer(from, to, a.addrs[i], all):
			t.packets[byFormer]++
		case !allowed && passes:
			t.bad = append(t.bad, fmt.Errorf("a forbidden packet from %s to %s (%s) passes after %s", from, to, b.addrs[i], after))
		case !allowed:
			t.packets["forbidden packets"+far]++
		case passes:
			t.passed[key] = ends{from, to}
			t.packets["permitted packets"+far]++
		case passed && t.past && !all:
			t.packets["permitted packets that are lost with an earlier state"]++
			delete(t.passed, key)
		case passed:
			t.bad = append(t.bad, fmt.Errorf("a permitted packet from %s to %s (%s) passed before, and is lost after %s", from, to, b.addrs[i], after))
		case all:
			t.bad = append(t.bad, fmt.Errorf("a permitted packet from %s to %s (%s) does not pass", from, to, b.addrs[i]))
		}
	}
}

// dial sends packets of new connections of a node's pods to Services: one, the next of all, or all.
func (t *traffic) dial(node int, after string, all bool) {
	names := slices.DeleteFunc(t.names(), func(name string) bool { return nodeOf(name) != node })
	n := len(names) * len(services) * 2
	if !all && n > 0 {
		t.next++
		t.dialService(names, t.next%n, after, false)
		return
	}
	for i := range n {
		t.dialService(names, i, after, true)
	}
}

// dialService sends some packets of new connections of a pod to a Service, by number. Each arrives at an endpoint that the policy lets the pod reach.
func (t *traffic) dialService(names []string, i int, after string, all bool) {
	family, i := i%2, i/2
	s, from := &services[i%len(services)], names[i/len(services)%len(names)]
	if family >= len(t.live[from].addrs) {
		return
	}
	endpoints := slices.ContainsFunc(t.names(), s.member)
	at := t.places[nodeOf(from)]
	for range map[bool]int{true: 4, false: 1}[all] {
		t.next++
		p := sim.Packet{Src: t.live[from].addrs[family], Dst: s.addrs[family], Proto: model.TCP, SrcPort: uint16(40000 + t.next%10000), DstPort: servicePort}.Opening()
		to := ""
		for _, in := range at.of[from] {
			to = cmp.Or(to, t.reached(at, in, p, from, family))
		}
		text := fmt.Sprintf("a connection of %s to the Service %s (%s)", from, s.name, s.addrs[family])
		switch {
		case to == "" && all && !isWeb(from) && endpoints:
			t.bad = append(t.bad, fmt.Errorf("%s reaches no endpoint", text))
		case to == "":
			t.packets["packets to Services that do not pass"]++
		case isWeb(from) && isWeb(to) && from != to && t.hasFormer(from, to, p.Src, all):
			t.packets[byFormer]++
		case isWeb(from) && isWeb(to) && from != to:
			t.bad = append(t.bad, fmt.Errorf("%s reaches %s after %s, and the policy forbids it", text, to, after))
		case !s.member(to) && (all || !t.late && !t.past):
			t.bad = append(t.bad, fmt.Errorf("%s reaches %s after %s, which is no endpoint", text, to, after))
		case t.live[to] == nil && all:
			t.bad = append(t.bad, fmt.Errorf("%s reaches %s after %s, which has no sandbox", text, to, after))
		default:
			t.packets["packets to Services"]++
			if nodeOf(to) != nodeOf(from) {
				t.packets["packets to Services with an endpoint of another node"]++
			}
			if a := s.addrs[family]; all && a.Is4() && t.live[from].netns != "" { // of the other family no translation is lost for ever (ADR 34)
				at.open(t.live[from].netns, netip.AddrPortFrom(a, servicePort), to)
			}
		}
	}
}

// reached is the pod that a packet of another pod reaches; "": it reaches none.
func (t *traffic) reached(at *place, in string, p sim.Packet, from string, family int) string {
	for _, o := range at.leaves(in, p) {
		for name, ifaces := range at.of {
			if slices.Contains(ifaces, o.Interface) {
				return name
			}
		}
		for _, name := range t.names() { // of another node
			if far := t.live[name]; o.Interface == at.far && family < len(far.addrs) && o.Packet.Dst == far.addrs[family] && t.places[nodeOf(name)].takes[t.key(from, family, name)] {
				return name
			}
		}
	}
	return ""
}

// arrives reports whether a packet leaves VPP by one of some interfaces.
func (at *place) arrives(in string, p sim.Packet, out []string) bool {
	return slices.ContainsFunc(at.leaves(in, p), func(o sim.Output) bool { return slices.Contains(out, o.Interface) })
}

// leaves are the packets that VPP forwards to a neighbour. It sends none to a host that is no neighbour: a pod's interface is not enabled for IP before
// its access lists are set, so VPP does not ask for the host.
func (at *place) leaves(in string, p sim.Packet) (out []sim.Output) {
	m := at.vpp.Snapshot()
	defer at.vpp.Release()
	fate := at.vpp.Send(in, p)
	at.vpp.Restore(m)
	if last := fate.Hops[len(fate.Hops)-1]; at.far != "" && last.Node == at.far+"-output" {
		out = at.wrapped(in, p)
		at.vpp.Restore(m)
	}
	for _, o := range fate.Out {
		if o.Origin == sim.Forwarded && (at.near == nil || at.near[o.Interface+" "+o.Packet.Dst.String()]) {
			out = append(out, o)
		}
	}
	return out
}

// interfacesOf are VPP's interfaces with the tag of a pod, by its name.
func interfacesOf(dump string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, "interface ") {
			continue
		}
		_, tag, tagged := strings.Cut(line, "pod:"+namespace+"/")
		if name, _, ended := strings.Cut(tag, ":"); tagged && ended {
			out[name] = append(out[name], strings.Fields(line)[1])
		}
	}
	return out
}

// neighboursOf are VPP's neighbours, by "INTERFACE ADDRESS".
func neighboursOf(dump string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "neighbor ") {
			words := strings.Fields(line)
			out[words[1]+" "+words[2]] = true
		}
	}
	return out
}

// figures count the packets.
func (t *traffic) figures() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.packets)
}

// errors are the broken laws.
func (t *traffic) errors() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.bad)
}

// TestTrafficFinds: a packet that the policy forbids passes a VPP without access lists, and a permitted one passes no more after the removal of its route.
func TestTrafficFinds(t *testing.T) {
	v, tr := sim.New(sim.Config{}), newTraffic()
	of := map[string][]string{}
	tr.places = []*place{{vpp: v, of: of}}
	for i, name := range []string{"p0", "p1", "p2"} {
		iface, a := fmt.Sprint("tap", i), netip.AddrFrom4([4]byte{10, 1, 1, byte(i)})
		v.AddInterface(sim.Interface{Name: iface})
		if err := v.AddRoute(sim.Route{Prefix: netip.PrefixFrom(a, 32), Paths: []sim.Path{{Interface: iface, Via: a}}}); err != nil {
			t.Fatal(err)
		}
		of[name] = []string{iface}
		tr.join(&pod{name: name}, &protocol.Request{Attachment: protocol.Attachment{ContainerID: name}}, []netip.Addr{a})
	}
	finds := func(from, to, want string) {
		t.Helper()
		tr.bad = nil
		tr.sendBetween(from, to, "a test", false)
		if got := fmt.Sprint(tr.bad); !strings.Contains(got, want) || want == "" && len(tr.bad) > 0 {
			t.Errorf("%s to %s: %s, want %q", from, to, got, want)
		}
	}
	finds("p0", "p2", "a forbidden packet from p0 to p2 (10.1.1.2) passes after a test")
	finds("p1", "p0", "")
	v.RemoveRoute(0, netip.MustParsePrefix("10.1.1.0/32"))
	finds("p1", "p0", "a permitted packet from p1 to p0 (10.1.1.0) passed before, and is lost after a test")
	tr.forget(0, v.Restart)
	finds("p1", "p0", "")
}

// TestServicesFind: packets to a Service that a policy forbids, that reach a pod which is no endpoint, and that reach none are found; so is an interface that is removed.
// Here a route takes the place of the Service.
func TestServicesFind(t *testing.T) {
	v, tr := sim.New(sim.Config{}), newTraffic()
	opened := map[string]bool{}
	at := &place{vpp: v, open: func(namespace string, _ netip.AddrPort, _ string) { opened[namespace] = true }}
	tr.places = []*place{at}
	for i, name := range []string{"p0", "p1", "p2"} {
		iface, a := fmt.Sprint("tap", i), netip.AddrFrom4([4]byte{10, 1, 1, byte(i)})
		v.AddInterface(sim.Interface{Name: iface, Tag: "pod:" + namespace + "/" + name + ":eth0"})
		tr.join(&pod{name: name}, &protocol.Request{Attachment: protocol.Attachment{ContainerID: name}, Netns: "of " + name}, []netip.Addr{a})
	}
	for _, tc := range []struct {
		to        string // interface of the route of the Service web; "": none
		all, past bool
		want      string
	}{
		{"tap0", true, false, "to the Service web (10.96.0.10) reaches p0 after a test, and the policy forbids it"}, // from p2
		{"tap1", true, false, "a connection of p0 to the Service web (10.96.0.10) reaches p1 after a test, which is no endpoint"},
		{"tap1", true, true, "which is no endpoint"},
		{"tap1", false, false, "which is no endpoint"},
		{"tap1", false, true, ""},
		{"", true, false, "a connection of p1 to the Service web (10.96.0.10) reaches no endpoint"},
		{"", false, false, ""},
	} {
		to := netip.PrefixFrom(services[0].addrs[0], 32)
		v.RemoveRoute(0, to)
		if tc.to != "" {
			if err := v.AddRoute(sim.Route{Prefix: to, Paths: []sim.Path{{Interface: tc.to, Via: services[0].addrs[0]}}}); err != nil {
				t.Fatal(err)
			}
		}
		tr.bad = nil
		tr.mayBe(tc.past, false)
		at.of = interfacesOf(v.Dump())
		for i := range 24 { // all questions, of which those about web's IPv4 address count
			if i%4 == 0 {
				tr.dialService([]string{"p0", "p1", "p2"}, i, "a test", tc.all)
			}
		}
		if got := fmt.Sprint(tr.bad); !strings.Contains(got, tc.want) || tc.want == "" && len(tr.bad) > 0 {
			t.Errorf("%+v: %s", tc, got)
		}
	}
	if !opened["of p1"] {
		t.Errorf("connections: %v, want one of p1", opened)
	}
	tr.bad = nil
	tr.send(0, "nothing")
	v.RemoveInterface("tap1")
	tr.send(0, "a removal")
	if got := fmt.Sprint(tr.bad); !strings.Contains(got, "the interface of p1 is removed after a removal") {
		t.Errorf("%s", got)
	}
}

// TestHangingConnectionsAreFound: so is a connection that the agent ends although VPP has its translation.
func TestHangingConnectionsAreFound(t *testing.T) {
	k, dead := &kernel{open: connections{}}, &atomic.Bool{}
	to := netip.MustParseAddrPort("10.96.0.10:80")
	end, all := k.connectionsOf(dead), func(netip.AddrPort) bool { return true }
	expect := func(what string, found bool) {
		t.Helper()
		if err := k.hanging(); (err != nil) != found {
			t.Errorf("%s: %v", what, err)
		}
	}
	k.openConnection("a", to, "p1")
	expect("open", false)
	k.loseTranslations()
	expect("lost", true)
	dead.Store(true)
	if n, _ := end("a", all); n != 0 {
		t.Error("a dead agent ends a connection")
	}
	dead.Store(false)
	if n, _ := end("a", func(netip.AddrPort) bool { return false }); n != 0 {
		t.Error("a connection to another address ends")
	}
	if n, _ := end("a", all); n != 1 {
		t.Errorf("%d connections end", n)
	}
	expect("ended", false)
	k.openConnection("b", to, "p1")
	k.loseTranslations()
	k.closeConnections("b", "p2")
	expect("closed by its pod", false)
	k.openConnection("c", to, "p1")
	k.openConnection("c", to, "p2")
	k.loseTranslations()
	k.openConnection("c", to, "p3")
	k.closeConnections("d", "p1")
	expect("another endpoint is left", true)
	k.closeConnections("d", "p2")
	expect("closed by its endpoints", false)
	k.openConnection("a", to, "p1")
	if _, err := end("a", all); err != nil {
		t.Error(err)
	}
	expect("ended with a translation", true)
}
