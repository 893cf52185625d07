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

// traffic is the packets between pods that follow each message to VPP. A pod takes part from its acknowledged ADD to the first request that removes
// its sandbox.
type traffic struct {
	mu      sync.Mutex
	live    map[string]*member // by name of the pod
	passed  map[string]bool    // packets that have passed, by "ATTACHMENT FAMILY ATTACHMENT": they must pass until an end of theirs is removed, or VPP
	near    map[string]bool    // VPP's neighbours, by "INTERFACE ADDRESS"; nil: each address is one
	has     map[string]bool    // pods whose interface VPP has had since its start
	next    int                // of the questions about Services
	past    bool               // the API server has an earlier state, or may have: its pods may be closed, and its endpoints gone
	late    bool               // the API server's changes are late: an endpoint may be gone
	packets map[string]int
	bad     []error
}

// member is the sandbox of a pod that takes part.
type member struct {
	at    protocol.Attachment
	netns string // ""; no kernel has its connections
	addrs []netip.Addr
}

func newTraffic() *traffic {
	return &traffic{live: map[string]*member{}, passed: map[string]bool{}, has: map[string]bool{}, packets: map[string]int{}}
}

// join lets a pod take part.
func (t *traffic) join(p *pod, req *protocol.Request, addrs []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[p.name] = &member{req.Attachment, req.Netns, addrs}
	if req.Interface == protocol.InterfaceMemif {
		t.live[p.name].netns = ""
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
}

// forget ends a VPP, while no packets are sent: the next one has nothing.
func (t *traffic) forget(end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.passed)
	clear(t.has)
	end()
}

// isWeb reports whether the policy isolates a pod: clients alone may reach it.
func isWeb(name string) bool { return name[1]%2 == 0 }

// send sends a packet of each family from each pod to each other one, and one to a Service, without a trace in VPP's sessions. all: to all Services, and also those
// that have not passed yet must pass.
func (t *traffic) send(v *sim.VPP, after string, all bool, open func(namespace string, to netip.AddrPort, endpoint string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) == 0 {
		return
	}
	dump, names := v.Dump(), slices.Sorted(maps.Keys(t.live))
	of := interfacesOf(dump)
	t.near = neighboursOf(dump)
	for _, name := range names {
		if t.has[name] && len(of[name]) == 0 {
			t.bad = append(t.bad, fmt.Errorf("the interface of %s is removed after %s", name, after))
		}
		t.has[name] = len(of[name]) > 0
	}
	t.dial(v, of, names, after, all, open)
	for _, from := range names {
		for _, to := range names {
			if from != to {
				t.sendBetween(v, of, from, to, after, all)
			}
		}
	}
}

func (t *traffic) sendBetween(v *sim.VPP, of map[string][]string, from, to, after string, all bool) {
	a, b := t.live[from], t.live[to]
	for i := range min(len(a.addrs), len(b.addrs)) {
		passes := false
		for _, in := range of[from] {
			passes = passes || t.arrives(v, in, sim.Packet{Src: a.addrs[i], Dst: b.addrs[i], Proto: model.TCP, SrcPort: 40000, DstPort: 80}.Opening(), of[to])
		}
		key := fmt.Sprint(a.at, " ", i, " ", b.at)
		allowed := !isWeb(to) || !isWeb(from)
		switch {
		case !allowed && passes:
			t.bad = append(t.bad, fmt.Errorf("a forbidden packet from %s to %s (%s) passes after %s", from, to, b.addrs[i], after))
		case !allowed:
			t.packets["forbidden packets"]++
		case passes:
			t.passed[key] = true
			t.packets["permitted packets"]++
		case t.passed[key] && t.past && !all:
			t.packets["permitted packets that are lost with an earlier state"]++
			delete(t.passed, key)
		case t.passed[key]:
			t.bad = append(t.bad, fmt.Errorf("a permitted packet from %s to %s (%s) passed before, and is lost after %s", from, to, b.addrs[i], after))
		case all:
			t.bad = append(t.bad, fmt.Errorf("a permitted packet from %s to %s (%s) does not pass", from, to, b.addrs[i]))
		}
	}
}

// dial sends packets of new connections to Services: one, the next of all, or all.
func (t *traffic) dial(v *sim.VPP, of map[string][]string, names []string, after string, all bool, open func(namespace string, to netip.AddrPort, endpoint string)) {
	n := len(names) * len(services) * 2
	if !all {
		t.next++
		t.dialService(v, of, names, t.next%n, after, false, open)
		return
	}
	for i := range n {
		t.dialService(v, of, names, i, after, true, open)
	}
}

// dialService sends some packets of new connections of a pod to a Service, by number. Each arrives at an endpoint that the policy lets the pod reach.
func (t *traffic) dialService(v *sim.VPP, of map[string][]string, names []string, i int, after string, all bool, open func(namespace string, to netip.AddrPort, endpoint string)) {
	family, i := i%2, i/2
	s, from := &services[i%len(services)], names[i/len(services)%len(names)]
	if family >= len(t.live[from].addrs) {
		return
	}
	endpoints := slices.ContainsFunc(names, s.member)
	for range map[bool]int{true: 4, false: 1}[all] {
		t.next++
		p := sim.Packet{Src: t.live[from].addrs[family], Dst: s.addrs[family], Proto: model.TCP, SrcPort: uint16(40000 + t.next%10000), DstPort: servicePort}.Opening()
		to := ""
		for _, in := range of[from] {
			to = cmp.Or(to, t.reached(v, of, in, p))
		}
		text := fmt.Sprintf("a connection of %s to the Service %s (%s)", from, s.name, s.addrs[family])
		switch {
		case to == "" && all && !isWeb(from) && endpoints:
			t.bad = append(t.bad, fmt.Errorf("%s reaches no endpoint", text))
		case to == "":
			t.packets["packets to Services that do not pass"]++
		case isWeb(from) && isWeb(to) && from != to:
			t.bad = append(t.bad, fmt.Errorf("%s reaches %s after %s, and the policy forbids it", text, to, after))
		case !s.member(to) && (all || !t.late && !t.past):
			t.bad = append(t.bad, fmt.Errorf("%s reaches %s after %s, which is no endpoint", text, to, after))
		case t.live[to] == nil && all:
			t.bad = append(t.bad, fmt.Errorf("%s reaches %s after %s, which has no sandbox", text, to, after))
		default:
			t.packets["packets to Services"]++
			if a := s.addrs[family]; all && a.Is4() && t.live[from].netns != "" { // of the other family no translation is lost for ever (ADR 34)
				open(t.live[from].netns, netip.AddrPortFrom(a, servicePort), to)
			}
		}
	}
}

// reached is the pod whose interface a packet leaves by; "": it leaves by none.
func (t *traffic) reached(v *sim.VPP, of map[string][]string, in string, p sim.Packet) string {
	out := t.leaves(v, in, p)
	for name, ifaces := range of {
		if slices.ContainsFunc(out, func(o string) bool { return slices.Contains(ifaces, o) }) {
			return name
		}
	}
	return ""
}

// arrives reports whether a packet leaves VPP by one of some interfaces.
func (t *traffic) arrives(v *sim.VPP, in string, p sim.Packet, out []string) bool {
	return slices.ContainsFunc(t.leaves(v, in, p), func(o string) bool { return slices.Contains(out, o) })
}

// leaves are the interfaces by which VPP forwards a packet to a neighbour. It sends none to a host that is no neighbour: a pod's interface is not enabled for IP before
// its access lists are set, so VPP does not ask for the host.
func (t *traffic) leaves(v *sim.VPP, in string, p sim.Packet) (out []string) {
	m := v.Snapshot()
	fate := v.Send(in, p)
	v.Restore(m)
	v.Release()
	for _, o := range fate.Out {
		if o.Origin == sim.Forwarded && (t.near == nil || t.near[o.Interface+" "+o.Packet.Dst.String()]) {
			out = append(out, o.Interface)
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
		if words := strings.Fields(line); len(words) > 2 && words[0] == "neighbor" {
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
		tr.sendBetween(v, of, from, to, "a test", false)
		if got := fmt.Sprint(tr.bad); !strings.Contains(got, want) || want == "" && len(tr.bad) > 0 {
			t.Errorf("%s to %s: %s, want %q", from, to, got, want)
		}
	}
	finds("p0", "p2", "a forbidden packet from p0 to p2 (10.1.1.2) passes after a test")
	finds("p1", "p0", "")
	v.RemoveRoute(0, netip.MustParsePrefix("10.1.1.0/32"))
	finds("p1", "p0", "a permitted packet from p1 to p0 (10.1.1.0) passed before, and is lost after a test")
	tr.forget(v.Restart)
	finds("p1", "p0", "")
}

// TestServicesFind: packets to a Service that a policy forbids, that reach a pod which is no endpoint, and that reach none are found; so is an interface that is removed.
// Here a route takes the place of the Service.
func TestServicesFind(t *testing.T) {
	v, tr := sim.New(sim.Config{}), newTraffic()
	for i, name := range []string{"p0", "p1", "p2"} {
		iface, a := fmt.Sprint("tap", i), netip.AddrFrom4([4]byte{10, 1, 1, byte(i)})
		v.AddInterface(sim.Interface{Name: iface, Tag: "pod:" + namespace + "/" + name + ":eth0"})
		tr.join(&pod{name: name}, &protocol.Request{Attachment: protocol.Attachment{ContainerID: name}, Netns: "of " + name}, []netip.Addr{a})
	}
	opened := map[string]bool{}
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
		of := interfacesOf(v.Dump())
		for i := range 24 { // all questions, of which those about web's IPv4 address count
			if i%4 == 0 {
				tr.dialService(v, of, []string{"p0", "p1", "p2"}, i, "a test", tc.all, func(namespace string, _ netip.AddrPort, _ string) { opened[namespace] = true })
			}
		}
		if got := fmt.Sprint(tr.bad); !strings.Contains(got, tc.want) || tc.want == "" && len(tr.bad) > 0 {
			t.Errorf("%+v: %s", tc, got)
		}
	}
	if !opened["of p1"] {
		t.Errorf("connections: %v, want one of p1", opened)
	}
	ignore := func(string, netip.AddrPort, string) {}
	tr.bad = nil
	tr.send(v, "nothing", false, ignore)
	v.RemoveInterface("tap1")
	tr.send(v, "a removal", false, ignore)
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
