package realvpp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// The cluster of these tests: two nodes; pods a and b here, far on the other node.
var (
	podA   = podAt("a", "node-1", "10.1.1.2")
	podB   = podAt("b", "node-1", "10.1.1.3")
	podFar = podAt("far", "node-2", "10.1.2.2")
)

func podAt(name, node, ip string) *model.Pod {
	return &model.Pod{ID: model.PodID{Namespace: "default", Name: name}, NodeName: node, IPs: []netip.Addr{netip.MustParseAddr(ip)}}
}

func nodeAt(n int) *model.Node {
	return &model.Node{
		Name: fmt.Sprintf("node-%d", n), InternalIPs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.16.%d", n))},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", n))},
	}
}

func base() []model.Object {
	cidr := &model.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	return []model.Object{cidr, nodeAt(1), nodeAt(2), podA, podB, podFar}
}

// web is a Service of TCP port 80 with the cluster IP 10.96.0.10 and, if it is one, node port 30080.
func web(change func(*model.Service)) *model.Service {
	s := &model.Service{
		ID: model.ServiceID{Namespace: "default", Name: "web"}, Type: model.ClusterIP,
		ClusterIPs:            []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports:                 []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		ExternalTrafficPolicy: model.PolicyCluster, InternalTrafficPolicy: model.PolicyCluster,
	}
	if change != nil {
		change(s)
	}
	return s
}

func nodePort(policy model.TrafficPolicy) func(*model.Service) {
	return func(s *model.Service) {
		s.Type, s.Ports[0].NodePort, s.ExternalTrafficPolicy = model.NodePort, 30080, policy
	}
}

// endpoints are pods that serve web at port 8080.
func endpoints(pods ...*model.Pod) *model.EndpointSlice {
	s := &model.EndpointSlice{
		ID: model.SliceID{Namespace: "default", Name: "web-a"}, Service: model.ServiceID{Namespace: "default", Name: "web"},
		Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
	}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: p.IPs[0], NodeName: p.NodeName, Pod: p.ID, Ready: true, Serving: true})
	}
	return s
}

// door is the interface behind which a pod is.
func door(p *model.Pod) string { return cni.PodInterface(p.ID) }

// exam sends packets and wants texts.
type exam struct {
	*twin
	t    *testing.T
	port uint16
}

// become makes these the objects beside the base.
func (e *exam) become(objects ...model.Object) {
	e.t.Helper()
	if err := e.twin.become(append(base(), objects...)); err != nil {
		e.t.Fatal(err)
	}
}

// put changes objects.
func (e *exam) put(objects ...model.Object) {
	e.t.Helper()
	if err := e.apply(puts(objects)); err != nil {
		e.t.Fatal(err)
	}
}

func puts(objects []model.Object) []event.Change {
	var changes []event.Change
	for _, obj := range objects {
		changes = append(changes, event.Change{Ref: obj.Ref(), Object: obj})
	}
	return changes
}

// open sends the first packet of a TCP connection from an unused port.
func (e *exam) open(in, src, dst string) (flight, []landing) {
	e.t.Helper()
	e.port++
	f := same(packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr(src), e.port), netip.MustParseAddrPort(dst)))
	return f, e.pass(in, f)
}

func (e *exam) pass(in string, f flight) []landing {
	e.t.Helper()
	out, err := e.send(in, f)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// shows wants a packet to leave the real VPP as "interface: source -> destination", with * for the ports that NAT may choose
// and = for the client's.
func (e *exam) shows(out []landing, want string) {
	e.t.Helper()
	if have := e.line(out, strings.Contains(want, "*")); have != want {
		e.t.Fatalf("want %s\ngot  %s", want, have)
	}
}

func (e *exam) line(out []landing, anyPort bool) string {
	var list []string
	for _, l := range out {
		p := l.real
		text := fmt.Sprintf("%s: %s:%d -> %s:%d", l.at, p.Src, p.SrcPort, p.Dst, p.DstPort)
		if p.IsICMPError() {
			text = fmt.Sprintf("%s: %s -> %s type %d code %d", l.at, p.Src, p.Dst, p.ICMPType, p.ICMPCode)
		}
		text = strings.ReplaceAll(text, fmt.Sprintf(":%d", e.port), ":=")
		if anyPort && !p.IsICMPError() {
			text = strings.Replace(text, fmt.Sprintf(":%d -> ", p.SrcPort), ":* -> ", 1)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// TestVPPTranslations looks at the basic stories on a real VPP, packet by packet. The simulated one does the same beside it,
// or the story fails.
func TestVPPTranslations(t *testing.T) {
	w := startTwin(t, theVPP(t), "node-1", agent.Config{})
	e := &exam{twin: w, port: 40000}
	for _, story := range []struct {
		name string
		tell func(*exam)
	}{
		{"cluster IP", clusterIP},
		{"hairpin", hairpin},
		{"node port", nodePorts},
		{"to the outside", outside},
		{"no endpoints", noEndpoints},
		{"local policy without an endpoint here", noLocalEndpoint},
		{"affinity", affinity},
		{"endpoints come and go", comeAndGo},
		{"agent restarts", agentRestarts},
		{"VPP restarts", vppRestarts},
		{"mappings of others", foreignMappings},
	} {
		t.Run(story.name, func(t *testing.T) {
			e.t = t
			story.tell(e)
		})
	}
}

func clusterIP(e *exam) {
	e.become(web(nil), endpoints(podB))
	_, out := e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	e.shows(out, door(podB)+": 10.1.1.2:= -> 10.1.1.3:8080")
	e.shows(e.pass(out[0].at, out[0].reply()), door(podA)+": 10.96.0.10:80 -> 10.1.1.2:=")
	e.put(endpoints(podFar))
	_, out = e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	e.shows(out, "overlay: 10.1.1.2:= -> 10.1.2.2:8080")
	e.shows(e.pass(out[0].at, out[0].reply()), door(podA)+": 10.96.0.10:80 -> 10.1.1.2:=")
	_, out = e.open(door(podA), "10.1.1.2", "10.1.2.2:8080") // not through the service
	e.shows(out, "overlay: 10.1.1.2:= -> 10.1.2.2:8080")
	e.shows(e.pass(out[0].at, out[0].reply()), door(podA)+": 10.1.2.2:8080 -> 10.1.1.2:=")
}

func hairpin(e *exam) {
	e.become(web(nil), endpoints(podA))
	_, out := e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	e.shows(out, door(podA)+": 10.1.1.254:* -> 10.1.1.2:8080")
	e.shows(e.pass(out[0].at, out[0].reply()), door(podA)+": 10.96.0.10:80 -> 10.1.1.2:=")
}

func nodePorts(e *exam) {
	e.become(web(nodePort(model.PolicyCluster)), endpoints(podB))
	_, out := e.open(cni.Uplink, "198.51.100.7", "192.168.16.1:30080")
	e.shows(out, door(podB)+": 10.1.1.254:* -> 10.1.1.3:8080")
	e.shows(e.pass(out[0].at, out[0].reply()), "uplink: 192.168.16.1:30080 -> 198.51.100.7:=")
	e.put(endpoints(podFar))
	_, out = e.open(cni.Uplink, "198.51.100.7", "192.168.16.1:30080")
	e.shows(out, "overlay: 10.1.1.254:* -> 10.1.2.2:8080")
	e.shows(e.pass(out[0].at, out[0].reply()), "uplink: 192.168.16.1:30080 -> 198.51.100.7:=")
	e.put(web(nodePort(model.PolicyLocal)), endpoints(podB, podFar))
	for range 8 {
		_, out = e.open(cni.Uplink, "198.51.100.7", "192.168.16.1:30080")
		e.shows(out, door(podB)+": 198.51.100.7:= -> 10.1.1.3:8080")
	}
	e.shows(e.pass(out[0].at, out[0].reply()), "uplink: 192.168.16.1:30080 -> 198.51.100.7:=")
}

func outside(e *exam) {
	e.become()
	_, out := e.open(door(podA), "10.1.1.2", "203.0.113.80:443")
	e.shows(out, "uplink: 192.168.16.1:= -> 203.0.113.80:443")
	e.shows(e.pass(out[0].at, out[0].reply()), door(podA)+": 203.0.113.80:443 -> 10.1.1.2:=")
}

func noEndpoints(e *exam) {
	e.become(web(nil), endpoints())
	time.Sleep(quiet) // VPP answers few of these at a time
	_, out := e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	e.shows(out, door(podA)+": 169.254.1.1 -> 10.1.1.2 type 3 code 1")
	e.put(endpoints(podB))
	time.Sleep(quiet)
	_, out = e.open(door(podA), "10.1.1.2", "10.96.0.10:81") // no such port
	e.shows(out, door(podA)+": 169.254.1.1 -> 10.1.1.2 type 3 code 1")
	_, out = e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	e.shows(out, door(podB)+": 10.1.1.2:= -> 10.1.1.3:8080")
}

func noLocalEndpoint(e *exam) {
	e.become(web(func(s *model.Service) { s.InternalTrafficPolicy = model.PolicyLocal }), endpoints(podFar))
	_, out := e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	e.shows(out, "")
}

func affinity(e *exam) {
	sticky := web(func(s *model.Service) { s.SessionAffinityTimeout = time.Hour })
	e.become(sticky, endpoints(podA, podB, podFar))
	chosen := map[string]int{}
	for i := range 16 {
		_, out := e.open(cni.Uplink, "198.51.100.7", "10.96.0.10:80")
		if len(out) != 1 {
			e.t.Fatalf("%d packets left", len(out))
		}
		chosen[out[0].real.Dst.String()]++
		if i == 8 { // an endpoint that is not the client's is removed, another one is added again
			e.put(endpoints(slices.DeleteFunc([]*model.Pod{podA, podB, podFar}, func(p *model.Pod) bool {
				return p.IPs[0] != out[0].real.Dst && p != podFar
			})...))
		}
	}
	if len(chosen) != 1 {
		e.t.Errorf("one client got %v", chosen)
	}
}

func comeAndGo(e *exam) {
	e.become(web(nil), endpoints(podB))
	f, out := e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	e.shows(out, door(podB)+": 10.1.1.2:= -> 10.1.1.3:8080")
	e.pass(out[0].at, out[0].reply())
	f = f.both(func(p packet.Packet) packet.Packet { p.TCPFlags = packet.ACK; return p })
	steps := []struct {
		pods   []*model.Pod
		writes int
		want   string
	}{
		{[]*model.Pod{podB, podFar}, 3, door(podB) + ": 10.1.1.2:= -> 10.1.1.3:8080"}, // with pads around it
		{[]*model.Pod{podB, podFar, podA}, 3, door(podB) + ": 10.1.1.2:= -> 10.1.1.3:8080"},
		{[]*model.Pod{podB, podA}, 2, door(podB) + ": 10.1.1.2:= -> 10.1.1.3:8080"},
		{[]*model.Pod{podB}, 2, door(podB) + ": 10.1.1.2:= -> 10.1.1.3:8080"},
		{[]*model.Pod{podB, podFar}, 2, door(podB) + ": 10.1.1.2:= -> 10.1.1.3:8080"},
		{[]*model.Pod{podFar}, 2, ""}, // its own backend is gone: the connection is cut
	}
	for i, s := range steps {
		e.written = nil
		e.put(endpoints(s.pods...))
		if len(e.written) != s.writes {
			e.t.Errorf("step %d: want %d writes, got %v", i, s.writes, e.written)
		}
		e.shows(e.pass(door(podA), f), s.want)
	}
}

func agentRestarts(e *exam) {
	e.become(web(nodePort(model.PolicyCluster)), endpoints(podB, podFar))
	f, before := e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	if err := e.settled(); err != nil {
		e.t.Fatal(err)
	}
	after := e.pass(door(podA), f.both(func(p packet.Packet) packet.Packet { p.TCPFlags = packet.ACK; return p }))
	e.shows(after, e.line(before, false))
}

func vppRestarts(e *exam) {
	e.become(web(nodePort(model.PolicyCluster)), endpoints(podB))
	if err := e.restartVPPs(); err != nil {
		e.t.Fatal(err)
	}
	if err := e.settled(); err != nil {
		e.t.Fatal(err)
	}
	_, out := e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	e.shows(out, door(podB)+": 10.1.1.2:= -> 10.1.1.3:8080")
}

func foreignMappings(e *exam) {
	e.become(web(nil), endpoints(podB))
	theirs := &nat44_ed.Nat44AddDelLbStaticMapping{
		IsAdd: true, Flags: nat_types.NAT_IS_OUT2IN_ONLY, Protocol: uint8(model.TCP), Tag: "somebody else",
		ExternalAddr: netip.MustParseAddr("198.51.100.50").As4(), ExternalPort: 25,
		Locals: []nat44_ed.Nat44LbAddrPort{
			{Addr: podA.IPs[0].As4(), Port: 2525, Probability: 1}, {Addr: podB.IPs[0].As4(), Port: 2525, Probability: 1},
		},
	}
	if err := e.both(theirs); err != nil {
		e.t.Fatal(err)
	}
	if err := e.settled(); err != nil {
		e.t.Fatal(err)
	}
	e.become()
	_, out := e.open(cni.Overlay, "10.1.2.2", "198.51.100.50:25")
	if have := e.line(out, false); !strings.Contains(have, ":2525") {
		e.t.Errorf("their mapping is gone: %s", have)
	}
	_, out = e.open(door(podA), "10.1.1.2", "10.96.0.10:80")
	if len(out) > 0 && !out[0].real.IsICMPError() {
		e.t.Errorf("ours is still there: %s", e.line(out, false))
	}
}
