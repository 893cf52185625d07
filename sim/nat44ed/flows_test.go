package nat44ed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// fabric is the setup of a measurement on a real VPP: services of every kind of backend.
func fabric(t *testing.T, withOverlay, twiceNodePorts bool) *lab {
	l := service(t)
	l.overlay = withOverlay
	if withOverlay {
		l.ok(l.InterfaceAddDelFeature(true, overlay, Inside))
		l.ok(l.InterfaceAddDelFeature(true, overlay, Outside))
	}
	nodePort := agents
	if twiceNodePorts {
		nodePort = TwiceNAT | Out2InOnly
	}
	for _, proto := range []uint8{protoTCP, protoUDP} {
		for i, backend := range []string{"10.1.1.3", "10.1.2.9", "192.168.16.2", "9.9.9.9"} {
			back := Local{Addr: addr(backend), Port: 8080, Probability: 1}
			l.ok(l.AddDelLBStaticMapping(true, LBMapping{
				External: addr(fmt.Sprintf("10.96.0.%d", i+1)), Port: 80, Proto: proto, Flags: agents, Locals: []Local{pad(1), back},
			}))
			l.ok(l.AddDelLBStaticMapping(true, LBMapping{
				External: addr("192.168.16.1"), Port: uint16(30001 + i), Proto: proto, Flags: nodePort, Locals: []Local{pad(1), back},
			}))
		}
	}
	return l
}

// Each row: the incoming interface, the packet, the output, and (in a second line, if any) the translation of the receiver's reply.
// The verdicts are those of a real VPP 24.06 with the same interfaces and mappings.
func TestFlowsAsMeasured(t *testing.T) {
	type row struct {
		name       string
		from       uint32
		send, want string
		by         uint32 // the interface of the reply
		answer     string // the reply as the first sender gets it; "": not checked
	}
	common := []row{
		{"a0 pod to ClusterIP, local pod", podA, "10.1.1.2:4000 -> 10.96.0.1:80", "10.1.1.2:4000 -> 10.1.1.3:8080", podB, "10.96.0.1:80 -> 10.1.1.2:4000"},
		{"a2 pod to ClusterIP, other node", podA, "10.1.1.2:4002 -> 10.96.0.3:80", "10.1.1.2:4002 -> 192.168.16.2:8080", uplink, "10.96.0.3:80 -> 10.1.1.2:4002"},
		{"a3 pod to ClusterIP, endpoint outside", podA, "10.1.1.2:4003 -> 10.96.0.4:80", "10.1.1.2:4003 -> 9.9.9.9:8080", uplink, "10.96.0.4:80 -> 10.1.1.2:4003"},
		{"b1 outside to NodePort, local pod", uplink, "8.8.8.8:5001 -> 192.168.16.1:30001", "8.8.8.8:5001 -> 10.1.1.3:8080", podB, "192.168.16.1:30001 -> 8.8.8.8:5001"},
		{"b3 outside to NodePort, other node", uplink, "8.8.8.8:5003 -> 192.168.16.1:30003", "192.168.16.1:5003 -> 192.168.16.2:8080", uplink, "192.168.16.1:30003 -> 8.8.8.8:5003"},
		{"b6 pod to own NodePort, local pod", podA, "10.1.1.2:5006 -> 192.168.16.1:30001", "10.1.1.2:5006 -> 10.1.1.3:8080", podB, "192.168.16.1:30001 -> 10.1.1.2:5006"},
		{"b9 pod to itself by ClusterIP", podB, "10.1.1.3:5009 -> 10.96.0.1:80", "10.2.1.254:* -> 10.1.1.3:8080", podB, "10.96.0.1:80 -> 10.1.1.3:5009"},
		{"c pod to the internet", podA, "10.1.1.2:6000 -> 1.2.3.4:80", "192.168.16.1:6000 -> 1.2.3.4:80", uplink, "1.2.3.4:80 -> 10.1.1.2:6000"},
		{"c2 pod to another node", podA, "10.1.1.2:6001 -> 192.168.16.2:80", "192.168.16.1:6001 -> 192.168.16.2:80", uplink, "192.168.16.2:80 -> 10.1.1.2:6001"},
		{"d2 remote pod to local pod", uplink, "10.1.2.9:6002 -> 10.1.1.2:80", "10.1.2.9:6002 -> 10.1.1.2:80", podA, "10.1.1.2:80 -> 10.1.2.9:6002"},
		{"f outside to pod", uplink, "8.8.8.8:6003 -> 10.1.1.2:80", "8.8.8.8:6003 -> 10.1.1.2:80", podA, "10.1.1.2:80 -> 8.8.8.8:6003"},
	}
	flat := append([]row{
		{"a pod to ClusterIP, remote pod", podA, "10.1.1.2:4001 -> 10.96.0.2:80", "10.1.1.2:4001 -> 10.1.2.9:8080", uplink, "10.96.0.2:80 -> 10.1.1.2:4001"},
		{"b2 outside to NodePort, remote pod", uplink, "8.8.8.8:5002 -> 192.168.16.1:30002", "192.168.16.1:5002 -> 10.1.2.9:8080", uplink, "192.168.16.1:30002 -> 8.8.8.8:5002"},
		{"d pod to remote pod", podA, "10.1.1.2:6004 -> 10.1.2.9:80", "192.168.16.1:6004 -> 10.1.2.9:80", uplink, "10.1.2.9:80 -> 10.1.1.2:6004"},
	}, common...)
	over := append([]row{
		{"a pod to ClusterIP, remote pod", podA, "10.1.1.2:4001 -> 10.96.0.2:80", "10.1.1.2:4001 -> 10.1.2.9:8080", overlay, "10.96.0.2:80 -> 10.1.1.2:4001"},
		{"b2 outside to NodePort, remote pod", uplink, "8.8.8.8:5002 -> 192.168.16.1:30002", "8.8.8.8:5002 -> 10.1.2.9:8080", 0, ""},
		{"d pod to remote pod", podA, "10.1.1.2:6004 -> 10.1.2.9:80", "10.1.1.2:6004 -> 10.1.2.9:80", overlay, "10.1.2.9:80 -> 10.1.1.2:6004"},
	}, common...)
	twice := []row{
		{"b1", uplink, "8.8.8.8:5001 -> 192.168.16.1:30001", "10.2.1.254:* -> 10.1.1.3:8080", podB, "192.168.16.1:30001 -> 8.8.8.8:5001"},
		{"b2", uplink, "8.8.8.8:5002 -> 192.168.16.1:30002", "10.2.1.254:* -> 10.1.2.9:8080", overlay, "192.168.16.1:30002 -> 8.8.8.8:5002"},
		{"b3", uplink, "8.8.8.8:5003 -> 192.168.16.1:30003", "192.168.16.1:* -> 192.168.16.2:8080", uplink, "192.168.16.1:30003 -> 8.8.8.8:5003"},
		{"b6", podA, "10.1.1.2:5006 -> 192.168.16.1:30001", "10.2.1.254:* -> 10.1.1.3:8080", podB, "192.168.16.1:30001 -> 10.1.1.2:5006"},
		{"b7", podA, "10.1.1.2:5007 -> 192.168.16.1:30002", "10.2.1.254:* -> 10.1.2.9:8080", overlay, "192.168.16.1:30002 -> 10.1.1.2:5007"},
		{"b8", podB, "10.1.1.3:5008 -> 192.168.16.1:30001", "10.2.1.254:* -> 10.1.1.3:8080", podB, "192.168.16.1:30001 -> 10.1.1.3:5008"},
	}
	for _, c := range []struct {
		name           string
		overlay, twice bool
		rows           []row
	}{{"flat", false, false, flat}, {"overlay", true, false, over}, {"overlay, twice-nat node ports", true, true, twice}} {
		for _, proto := range []string{"tcp", "udp"} {
			l := fabric(t, c.overlay, c.twice)
			for _, r := range c.rows {
				flags := ""
				if proto == "tcp" {
					flags = " [S]"
				}
				got := l.send(r.from, proto+" "+r.send+flags)
				if !sameFlow(got, proto+" "+r.want+flags) {
					t.Errorf("%s, %s, %s: got %s, want %s", c.name, proto, r.name, got, r.want)
					continue
				}
				if r.answer == "" {
					continue
				}
				p, err := packet.Parse(got)
				if err != nil {
					t.Fatal(err)
				}
				if flags != "" {
					flags = " [SA]"
				}
				if back := l.send(r.by, p.Reply().String()); back != proto+" "+r.answer+flags {
					t.Errorf("%s, %s, %s: answer %s, want %s", c.name, proto, r.name, back, r.answer)
				}
			}
		}
	}
}

// sameFlow compares, with * for the source port.
func sameFlow(got, want string) bool {
	before, after, ok := strings.Cut(want, "*")
	return got == want || ok && strings.HasPrefix(got, before) && strings.HasSuffix(got, after)
}

func TestICMPErrorsAsMeasured(t *testing.T) {
	for _, c := range []struct {
		name          string
		from          uint32
		send          string
		backend       uint32 // interface of the ICMP error
		own, onTheWay string // error of the receiver itself; of a router at 7.7.7.7 on the path
	}{
		{
			"pod to VIP, local pod", podA, "udp 10.1.1.2:4000 -> 10.96.0.1:80", podB,
			"icmp 10.96.0.1 -> 10.1.1.2 type 3 code 3 about (udp 10.1.1.2:4000 -> 10.96.0.1:80)",
			"icmp 10.96.0.1 -> 10.1.1.2 type 3 code 3 about (udp 10.1.1.2:4000 -> 10.96.0.1:80) (bad checksum)",
		},
		{
			"pod to VIP, itself", podB, "udp 10.1.1.3:4000 -> 10.96.0.1:80", podB,
			"icmp 10.96.0.1 -> 10.1.1.3 type 3 code 3 about (udp 10.1.1.3:4000 -> 10.96.0.1:80)",
			"icmp 10.96.0.1 -> 10.1.1.3 type 3 code 3 about (udp 10.1.1.3:4000 -> 10.96.0.1:80) (bad checksum)",
		},
		{
			"pod to VIP, remote pod", podA, "udp 10.1.1.2:4000 -> 10.96.0.2:80", uplink,
			"icmp 10.1.2.9 -> 10.1.1.2 type 3 code 3 about (udp 10.1.1.2:4000 -> 10.96.0.2:80)",
			"icmp 7.7.7.7 -> 10.1.1.2 type 3 code 3 about (udp 10.1.1.2:4000 -> 10.96.0.2:80)",
		},
		{
			"outside to VIP, local pod", uplink, "udp 8.8.8.8:4000 -> 10.96.0.1:80", podB,
			"drop: nat44-ed-in2out-output-slowpath: unsupported ICMP type",
			"drop: nat44-ed-in2out-output-slowpath: unsupported ICMP type",
		},
		{
			"outside to NodePort, remote pod", uplink, "udp 8.8.8.8:4000 -> 192.168.16.1:30002", uplink,
			"icmp 192.168.16.1 -> 8.8.8.8 type 3 code 3 about (udp 8.8.8.8:4000 -> 192.168.16.1:30002)",
			"icmp 192.168.16.1 -> 8.8.8.8 type 3 code 3 about (udp 8.8.8.8:4000 -> 192.168.16.1:30002) (bad checksum)",
		},
		{
			"pod to the internet", podA, "udp 10.1.1.2:4000 -> 1.2.3.4:80", uplink,
			"icmp 1.2.3.4 -> 10.1.1.2 type 3 code 3 about (udp 10.1.1.2:4000 -> 1.2.3.4:80)",
			"icmp 7.7.7.7 -> 10.1.1.2 type 3 code 3 about (udp 10.1.1.2:4000 -> 1.2.3.4:80)",
		},
		{
			"ping to the internet, identifier kept", podA, "icmp 10.1.1.2 -> 1.2.3.4 echo-request id 4000", uplink,
			"icmp 1.2.3.4 -> 10.1.1.2 type 3 code 3 about (icmp 10.1.1.2 -> 1.2.3.4 echo-request id 4000)",
			"icmp 7.7.7.7 -> 10.1.1.2 type 3 code 3 about (icmp 10.1.1.2 -> 1.2.3.4 echo-request id 4000)",
		},
		{
			"ping to the internet, identifier changed", podA, "icmp 10.1.1.2 -> 1.2.3.4 echo-request id 7", uplink,
			"icmp 1.2.3.4 -> 10.1.1.2 type 3 code 3 about (icmp 10.1.1.2 -> 1.2.3.4 echo-request id 7) (bad checksum)",
			"icmp 7.7.7.7 -> 10.1.1.2 type 3 code 3 about (icmp 10.1.1.2 -> 1.2.3.4 echo-request id 7) (bad checksum)",
		},
		{
			"pod to pod", podA, "udp 10.1.1.2:4000 -> 10.1.1.3:80", podB,
			"icmp 10.1.1.3 -> 10.1.1.2 type 3 code 3 about (udp 10.1.1.2:4000 -> 10.1.1.3:80)",
			"icmp 7.7.7.7 -> 10.1.1.2 type 3 code 3 about (udp 10.1.1.2:4000 -> 10.1.1.3:80)",
		},
		{
			"outside to pod", uplink, "udp 8.8.8.8:4000 -> 10.1.1.2:80", podA,
			"icmp 10.1.1.2 -> 8.8.8.8 type 3 code 3 about (udp 8.8.8.8:4000 -> 10.1.1.2:80)",
			// The bypass session of the datagram inserts its address.
			"icmp 10.1.1.2 -> 8.8.8.8 type 3 code 3 about (udp 8.8.8.8:4000 -> 10.1.1.2:80) (bad checksum)",
		},
	} {
		for _, router := range []bool{false, true} {
			l := fabric(t, false, false)
			p, err := packet.Parse(l.send(c.from, c.send))
			if err != nil {
				t.Fatal(c.name, err)
			}
			from, want := p.Dst, c.own
			if router {
				from, want = addr("7.7.7.7"), c.onTheWay
			}
			e := p.ICMPError(from, packet.Unreachable, packet.CodePort)
			if got := l.send(c.backend, e.String()); got != want {
				t.Errorf("%s, router %v:\ngot  %s\nwant %s", c.name, router, got, want)
			}
		}
	}
}

// A connection attempt before its VIP exists leaves by the uplink with a session. After the VIP is added that session still has the
// flow, so the client's retransmissions leave by the uplink. Even after the session has timed out, classify follows it to in2out,
// where the VIP has no local end: address 0, in a new session that again persists; with affinity VPP crashes. A reject route for the
// VIP, added before, keeps the packet from the uplink and prevents all of this.
func TestUnservedAttemptsStick(t *testing.T) {
	syn, astray := "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]", "tcp 192.168.16.1:4000 -> 10.96.0.10:80 [S]"
	for _, affinity := range []uint32{0, 10} {
		l := service(t)
		l.want(l.send(podA, syn), astray)
		l.ok(l.AddDelLBStaticMapping(true, with(lbMapping(pad(1), backB), func(m *LBMapping) { m.Affinity = affinity })))
		for range 10 {
			l.advance(100 * time.Second)
			l.want(l.send(podA, syn), astray)
		}
		l.want(l.send(podA, "tcp 10.1.1.2:4001 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:4001 -> 10.1.1.3:8080 [S]")
		l.advance(240 * time.Second)
		if affinity != 0 {
			l.dies(func() { l.send(podA, syn) }, "3.2 B12")
			continue
		}
		l.want(l.in(podA, syn), "tcp 192.168.16.1:4000 -> 0.0.0.0:0 [S]")
		l.want(l.in(podA, syn), "tcp 192.168.16.1:4000 -> 0.0.0.0:0 [S]")
	}
}

// In the reverse direction a session is found by the client's port and the endpoint. If a client uses one port for two VIPs with the
// same endpoint, replies come from the VIP of the latest session, whichever it dials.
func TestOnePortForTwoVIPs(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	other := lbMapping(pad(1), backB)
	other.External = addr("10.96.0.11")
	l.ok(l.AddDelLBStaticMapping(true, other))
	for _, dial := range []struct{ to, answers string }{
		{"10.96.0.10", "10.96.0.10"}, {"10.96.0.11", "10.96.0.11"}, {"10.96.0.10", "10.96.0.11"},
	} {
		l.want(l.send(uplink, "tcp 8.8.8.8:7 -> "+dial.to+":80 [S]"), "tcp 8.8.8.8:7 -> 10.1.1.3:8080 [S]")
		l.want(l.send(podB, "tcp 10.1.1.3:8080 -> 8.8.8.8:7 [SA]"), "tcp "+dial.answers+":80 -> 8.8.8.8:7 [SA]")
	}
}

func TestTTL(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	l.want(l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S] ttl 1"), "time exceeded")
	l.want(l.in(uplink, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S] ttl 1"), "time exceeded")
	l.want(l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S] ttl 2"), "tcp 10.1.1.2:7 -> 10.1.1.3:8080 [S] ttl 2")
	l.want(l.out(podA, uplink, "udp 10.1.1.2:5000 -> 8.8.8.8:53 ttl 1"), "udp 192.168.16.1:5000 -> 8.8.8.8:53 ttl 1")
}

func TestHopsAreVPPsNodes(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	hops := func(line string, swIf uint32) string {
		p, err := packet.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, h := range l.Input(&p, swIf, Meta{}).Hops {
			out = append(out, h.Node+": "+h.Text)
		}
		return strings.Join(out, "\n")
	}
	l.want(hops("tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]", podA), `nat44-ed-classify: next nat44-ed-out2in
nat44-ed-out2in: slow path: no session
nat44-ed-out2in-slowpath: dnat 10.1.1.3:8080`)
	l.want(hops("tcp 10.1.1.3:8080 -> 10.1.1.2:7 [SA]", podB), `nat44-ed-classify: next nat44-ed-in2out
nat44-ed-in2out: snat 10.96.0.10:80`)
	l.want(hops("udp 10.1.1.3:8080 -> 10.1.1.2:7", podB), `nat44-ed-classify: next nat44-ed-in2out
nat44-ed-in2out: slow path: no session
nat44-ed-in2out-slowpath: not translated: forwarding`)
	l.want(hops("udp 8.8.8.8:8080 -> 10.1.1.2:7", uplink), `nat44-ed-out2in: slow path: no session
nat44-ed-out2in-slowpath: not translated: forwarding, bypass session`)
}

// Two pool addresses: the one on the network of the destination, on the outgoing interface, is preferred.
func TestPoolAddressChoice(t *testing.T) {
	l := enabled(t)
	l.ok(l.ForwardingEnableDisable(true))
	l.ok(l.AddDelOutputInterface(true, uplink))
	for _, a := range []string{"172.30.0.1", "192.168.16.1", "172.30.0.2"} {
		l.ok(l.AddDelAddressRange(true, AddressRange{First: addr(a), Last: addr(a), VRF: 0}))
	}
	for src := 2; src < 8; src++ {
		l.want(l.out(podA, uplink, fmt.Sprintf("udp 10.1.1.%d:5000 -> 192.168.16.9:53", src)), "udp 192.168.16.1:5000 -> 192.168.16.9:53")
		l.ok(l.DelSession(SessionKey{Addr: addr("192.168.16.9"), Port: 53, Ext: addr("192.168.16.1"), ExtPort: 5000, Proto: protoUDP}))
		l.want(l.out(podA, uplink, fmt.Sprintf("udp 10.1.1.%d:%d -> 8.8.8.8:53", src, 5000+src)), fmt.Sprintf("udp 192.168.16.1:%d -> 8.8.8.8:53", 5000+src))
	}
}

// Two inside-only hosts and a single mapping: both flows of the session come by in2out. VPP restores the address of the
// answer and forgets its port.
func TestHairpinBetweenInsideHosts(t *testing.T) {
	l := enabled(t)
	run(t, l, []step{
		{"", role(true, podA, Inside), OK},
		{"", role(true, podB, Inside), OK},
		{"", role(true, uplink, Outside), OK},
		{"", addStatic(single("192.168.16.1", "10.1.1.3", 0)), OK},
	})
	l.pool("192.168.16.1", 0)
	l.want(l.in(podA, "tcp 10.1.1.2:4000 -> 192.168.16.1:80 [S]"), "tcp 192.168.16.1:4000 -> 10.1.1.3:8080 [S]")
	l.want(l.in(podB, "tcp 10.1.1.3:8080 -> 192.168.16.1:4000 [SA]"), "tcp 192.168.16.1:8080 -> 10.1.1.2:4000 [SA]")
	// A packet from the wrong kind of interface ends the session.
	l.want(l.out(podA, uplink, "udp 10.1.1.2:5000 -> 8.8.8.8:53"), "udp 10.1.1.2:5000 -> 8.8.8.8:53")
	l.want(l.in(podA, "udp 10.1.1.2:5000 -> 8.8.8.8:53"), "udp 192.168.16.1:5000 -> 8.8.8.8:53")
	l.want(l.in(podB, "udp 8.8.8.8:53 -> 192.168.16.1:5000"), "drop: nat44-ed-in2out: couldn't translate packet")
	l.want(l.in(uplink, "udp 8.8.8.8:53 -> 192.168.16.1:5000"), "drop: nat44-ed-out2in-slowpath: no translation")
}

func TestWithoutForwarding(t *testing.T) {
	l := enabled(t)
	run(t, l, []step{{"", role(true, podA, Inside), OK}, {"", role(true, uplink, Outside), OK}})
	l.pool("192.168.16.7", 0)
	for _, c := range []struct {
		swIf       uint32
		line, want string
	}{
		{uplink, "udp 8.8.8.8:67 -> 192.168.16.1:68", "udp 8.8.8.8:67 -> 192.168.16.1:68"}, // DHCP
		{uplink, "udp 8.8.8.8:67 -> 192.168.16.1:69", "drop: nat44-ed-out2in-slowpath: no translation"},
		{uplink, "icmp 8.8.8.8 -> 192.168.16.1 echo-request id 7", "icmp 8.8.8.8 -> 192.168.16.1 echo-request id 7"},
		{uplink, "icmp 8.8.8.8 -> 192.168.16.9 echo-request id 7", "drop: nat44-ed-out2in-slowpath: no translation"},
		{podA, "udp 10.1.1.2:5000 -> 10.1.1.1:53", "udp 10.1.1.2:5000 -> 10.1.1.1:53"}, // the interface's address
		{podA, "udp 10.1.1.2:5000 -> 10.1.1.3:53", "udp 10.1.1.2:5000 -> 10.1.1.3:53"}, // not behind an outside interface
		{podA, "udp 10.1.1.2:5000 -> 8.8.8.8:53", "udp 192.168.16.7:5000 -> 8.8.8.8:53"},
		{podA, "icmp 10.1.1.2 -> 8.8.8.8 type 13 code 0", "drop: nat44-ed-in2out: unsupported ICMP type"},
		{podA, "icmp 10.1.1.2 -> 8.8.8.8 type 3 code 1 about (udp 8.8.8.8:9 -> 10.1.1.2:9)", "drop: nat44-ed-in2out-slowpath: unsupported ICMP type"},
		{podA, "tcp 10.1.1.2:5000 -> 8.8.8.8:53 [A]", "drop: nat44-ed-in2out-slowpath: non-SYN packet try to create session"},
	} {
		l.want(l.in(c.swIf, c.line), c.want)
	}
	// An error about a protocol that NAT knows by address only cannot be translated and ends the session.
	l.want(l.in(podA, "proto-47 10.1.1.2 -> 8.8.8.8"), "proto-47 192.168.16.7 -> 8.8.8.8")
	if got := l.UserSessions(addr("10.1.1.2")); len(got) != 2 || got[1].Proto != 0 || got[1].Inside.Port() != 47<<8 || got[1].Outside.Port() != 47<<8 {
		l.t.Errorf("the dump says %+v, want protocol 0, and 47 as a port whose bytes VPP does not swap", got)
	}
	l.want(l.in(uplink, "icmp 8.8.8.8 -> 192.168.16.7 type 3 code 1 about (proto-47 192.168.16.7 -> 8.8.8.8)"), "drop: nat44-ed-out2in: couldn't translate packet")
}

func TestVRFRoutesChooseTheTable(t *testing.T) {
	l := enabled(t)
	l.tables[podA], l.tables[uplink] = 7, 3
	run(t, l, []step{{"", role(true, podA, Inside), OK}, {"", role(true, uplink, Outside), OK}})
	l.pool("192.168.16.7", 0)
	p, _ := packet.Parse("udp 10.1.1.2:5000 -> 8.8.8.8:53")
	table := func() uint32 {
		q := p.Clone()
		p.SrcPort++
		return l.Input(&q, podA, Meta{}).Table
	}
	if got := table(); got != 3 {
		t.Errorf("table %d, want that of the outside interface", got)
	}
	run(t, l, []step{
		{"", func(l *lab) int32 { return l.AddDelVRFTable(true, 7) }, OK},
		{"", func(l *lab) int32 { return l.AddDelVRFRoute(true, 7, 5) }, OK},
	})
	if got := table(); got != 5 {
		t.Errorf("table %d, want that of the VRF route", got)
	}
	l.TableBound(uplink, 3, 4)
	l.tables[uplink] = 4
	run(t, l, []step{{"", func(l *lab) int32 { return l.AddDelVRFTable(false, 7) }, OK}})
	if got := table(); got != 4 {
		t.Errorf("table %d, want the outside interface's new one", got)
	}
	q, _ := packet.Parse("udp 8.8.8.8:53 -> 192.168.16.7:5002")
	if got := l.Input(&q, uplink, Meta{}); got.Table != 7 || q.Dst != addr("10.1.1.2") {
		t.Errorf("answer to %s in table %d, want the inside host in table 7", q, got.Table)
	}
}
