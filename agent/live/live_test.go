package live

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/live/inject"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace/hops"
	"github.com/contiv-agent/contiv-agent/vpp/tracer"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// pods are the pods of a node, a Service, and interfaces with VPP's indexes of vpp/tracer's recorded traces.
func pods() (*Pods, map[uint32]*tracer.Interface) {
	p := &Pods{
		node: "node-1",
		Loop: Loop{Objects: func() []model.Object {
			return []model.Object{
				&model.Pod{ID: model.PodID{Namespace: "prod", Name: "client"}, NodeName: "node-1", IPs: addrs("10.1.1.2", "fd00::2")},
				&model.Pod{ID: model.PodID{Namespace: "prod", Name: "web"}, NodeName: "node-1", IPs: addrs("10.1.2.2")},
				&model.Pod{ID: model.PodID{Namespace: "prod", Name: "far"}, NodeName: "node-2", IPs: addrs("10.1.3.2")},
				&model.Pod{ID: model.PodID{Namespace: "prod", Name: "host"}, NodeName: "node-1", HostNetwork: true, IPs: addrs("192.168.16.1")},
				&model.Pod{ID: model.PodID{Namespace: "prod", Name: "done"}, NodeName: "node-1", Finished: true},
				&model.Service{ID: model.ServiceID{Namespace: "prod", Name: "web"}, ClusterIPs: addrs("10.96.0.10"), Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}}},
				&model.Service{ID: model.ServiceID{Namespace: "prod", Name: "headless"}, Headless: true},
			}
		}},
		located: func() *event.Located {
			return &event.Located{Uplink: "pg2", Pods: map[netip.Addr]string{netip.MustParseAddr("10.1.1.2"): "pg0", netip.MustParseAddr("10.1.2.2"): "pg1"}}
		},
	}
	return p, map[uint32]*tracer.Interface{1: {Name: "pg0", Input: []uint32{0}}, 2: {Name: "pg1", Output: []uint32{1}}, 3: {Name: "pg2"}}
}

func recorded(t *testing.T) []tracer.Packet {
	t.Helper()
	text, err := os.ReadFile("../../vpp/tracer/testdata/2510.txt")
	if err != nil {
		t.Fatal(err)
	}
	return tracer.Parse(string(text))
}

func TestResolve(t *testing.T) {
	p, _ := pods()
	for _, c := range []struct{ from, to, protocol, want string }{
		{"client", "prod/web:80", "", "10.1.1.2 10.96.0.10:80 6"},
		{"client", "service:prod/web:80", "tcp", "10.1.1.2 10.96.0.10:80 6"},
		{"client", "pod:prod/web:9", "UDP", "10.1.1.2 10.1.2.2:9 17"},
		{"client", "prod/far:9", "UDP", "10.1.1.2 10.1.3.2:9 17"},
		{"client", "[fd00:1::2]:80", "TCP", "fd00::2 [fd00:1::2]:80 6"},
		{"client", "fd00:1::2", "ICMP", "fd00::2 fd00:1::2 58"},
		{"client", "8.8.8.8", "ICMP", "10.1.1.2 8.8.8.8 1"},
		{"client", "prod/web:81", "TCP", "no port 81/TCP"},
		{"client", "service:prod/far:81", "TCP", "neither a Service nor a pod"},
		{"client", "pod:prod/headless:81", "TCP", "neither a Service nor a pod"},
		{"client", "prod/headless:80", "TCP", "no cluster IP"},
		{"client", "prod/web", "TCP", "want a port"},
		{"client", "prod/web:0", "TCP", "want a port"},
		{"client", "prod/web:80", "SCTP", "must be TCP, UDP or ICMP"},
		{"web", "[fd00:1::2]:80", "TCP", "no address of a family"},
		{"far", "prod/web:80", "TCP", `on node "node-2"`},
		{"host", "prod/web:80", "TCP", "host's network"},
		{"done", "prod/web:80", "TCP", "has finished"},
		{"none", "prod/web:80", "TCP", "does not know it"},
	} {
		got, err := p.resolveQuestion(Question{From: model.PodID{Namespace: "prod", Name: c.from}, To: c.to, Protocol: c.protocol})
		if err != nil && strings.Contains(err.Error(), c.want) {
			continue
		}
		line := got.Source.String() + " " + destinationOf(got) + " " + []string{1: "1", 6: "6", 17: "17", 58: "58", 132: ""}[got.Protocol]
		if err != nil || line != c.want {
			t.Errorf("%s -> %s %s: %q, %v, want %q", c.from, c.to, c.protocol, line, err, c.want)
		}
	}
}

// The first packet of a connection is chosen; one of a session, one that came by another interface, and one that is still in VPP are not.
func TestChoosePacket(t *testing.T) {
	all := recorded(t)
	opening, later, session := all[0], all[1], all[14]
	unended := tracer.Packet{Steps: opening.Steps[:4]}
	for _, c := range []struct {
		name  string
		list  []tracer.Packet
		index uint32
		found int // in the list; -1: none
		opens bool
	}{
		{"opening", []tracer.Packet{session, later, opening}, 1, 2, true},
		{"without an opening", []tracer.Packet{later, session}, 1, 1, false},
		{"UDP", []tracer.Packet{session, all[4]}, 1, 1, true},
		{"another interface", []tracer.Packet{opening}, 2, -1, false},
		{"in VPP still", []tracer.Packet{unended}, 1, -1, false},
		{"none", nil, 1, -1, false},
	} {
		found, opens := choosePacket(c.list, c.index)
		at := slices.IndexFunc(c.list, func(k tracer.Packet) bool { return found != nil && &k.Steps[0] == &found.Steps[0] })
		if at != c.found || opens != c.opens {
			t.Errorf("%s: packet %d, opens %t", c.name, at, opens)
		}
	}
}

// pathText is a path in short.
func pathText(path []hops.Hop) (out []string) {
	for _, h := range path {
		line := string(h.Kind)
		switch {
		case h.Packet != nil:
			line += " " + h.Interface + " " + h.Packet.Source + " -> " + h.Packet.Destination
		case h.ACL != nil:
			line += " " + h.Direction + " " + h.Interface + " " + h.Text
		case h.Translation != nil:
			line += " " + h.Translation.Before.Destination + " now " + h.Translation.After.Destination
		case h.Kind == hops.Other && h.Dropped:
			line += " " + h.GraphNode + " " + h.Text
		default:
			continue
		}
		if h.Dropped {
			line += ", dropped"
		}
		out = append(out, line)
	}
	return out
}

func TestDescribe(t *testing.T) {
	p, known := pods()
	all := recorded(t)
	for number, want := range map[int][]string{
		1:  {"input pod-prod/client 10.1.1.2 -> 10.96.0.10", "acl input pod-prod/client permit by rule 1 of list 0", "nat44 10.96.0.10 now 10.1.2.2", "acl output pod-prod/web permit by rule 1 of list 0", "output pod-prod/web 10.1.1.2 -> 10.1.2.2"},
		3:  {"input pod-prod/client 10.1.1.2 -> 10.1.2.2", "acl input pod-prod/client deny by rule 0 of list 0, dropped"},
		4:  {"input pod-prod/client 10.1.1.2 -> 10.1.2.2", "acl input pod-prod/client permit by rule 1 of list 0", "acl output pod-prod/web deny by rule 0 of list 0, dropped"},
		9:  {"input pod-prod/client 10.1.1.2 -> 8.8.4.4", "acl input pod-prod/client deny: no rule matches, dropped"},
		10: {"input pod-prod/client 10.1.1.2 -> 240.0.0.1", "acl input pod-prod/client permit by rule 2 of list 0", "other ip4-drop fib:0 adj:0 flow:0x00000000, dropped"},
		11: {"input pod-prod/client 10.1.1.2 -> 8.8.8.8", "acl input pod-prod/client permit by rule 2 of list 0", "other ip4-icmp-error VPP answers with an ICMP error, dropped"},
		13: {"input uplink 192.168.16.9 -> 10.1.2.2", "acl output pod-prod/web permit by rule 1 of list 0", "output pod-prod/web 192.168.16.9 -> 10.1.2.2"},
		15: {"input pod-prod/client 10.1.1.2 -> 10.96.0.10", "acl input pod-prod/client permit by a session", "nat44 10.96.0.10 now 10.1.2.2", "acl output pod-prod/web permit by a session", "output pod-prod/web 10.1.1.2 -> 10.1.2.2"},
	} {
		a := &Answer{}
		p.describePath(a, &all[number-1], known)
		got := pathText(a.Path)
		if !slices.Equal(got, want) {
			t.Errorf("packet %d:\n got %q\nwant %q", number, got, want)
		}
		if a.Session != (number == 15) {
			t.Errorf("packet %d: session %t", number, a.Session)
		}
	}
	a := &Answer{}
	p.describePath(a, &all[0], known)
	if a.Flags != "S" || a.Packet.SourcePort != 2001 || a.Packet.TTL != 64 || a.Path[0].Node != "node-1" {
		t.Errorf("%+v", a)
	}
}

// Of an injected packet, packets of other ports and identifiers are left out. Without one, nothing is sent and no packet is left out.
func TestSender(t *testing.T) {
	all := recorded(t)
	mine := all[0].Opening().SourcePort
	s := sender{&inject.Sender{Header: inject.Header{SourcePort: mine}}}
	echo := func(id uint16) tracer.Packet {
		return tracer.Packet{Steps: []tracer.Step{{Header: &tracer.Header{Protocol: 1, Identifier: id}}}}
	}
	if s.isForeign(tracer.Packet{Steps: []tracer.Step{{Header: &tracer.Header{Protocol: 58}}}}) {
		t.Error("ICMPv6, whose identifier VPP does not show")
	}
	if s.isForeign(all[0]) || !s.isForeign(all[4]) || s.isForeign(echo(mine)) || !s.isForeign(echo(mine+1)) {
		t.Errorf("port %d: the packets have %d and %d", mine, mine, all[4].Opening().SourcePort)
	}
	if none := (sender{}); none.isForeign(all[4]) || none.send() != nil {
		t.Error("without a packet to send")
	}
	p, _ := pods()
	p.Namespace = func(model.PodID) (string, error) { return "", errors.New("it has a memif") }
	filter := tracer.Filter{Source: netip.MustParseAddr("10.1.1.2"), Destination: netip.MustParseAddr("10.1.2.2"), Protocol: 6, Port: 80}
	q := Question{From: model.PodID{Namespace: "prod", Name: "client"}}
	if got, err := p.openSender(q, filter); err != nil || got.Sender != nil {
		t.Errorf("%+v, %v", got, err)
	}
	q.Inject = true
	if _, err := p.openSender(q, filter); err == nil || !strings.Contains(err.Error(), "pod prod/client: the agent cannot send as the pod: it has a memif") {
		t.Error(err)
	}
}

// The sessions that a packet made are those of rules that reflect and those of translations. A dropped packet and one of a session make none.
func TestSessionsLeft(t *testing.T) {
	p, known := pods()
	all := recorded(t)
	for number, want := range map[int][]string{
		1:  {"a session of the access lists of pod-prod/client, input", "a session of the access lists of pod-prod/web, output", "a session of nat44, TCP 10.1.1.2:2001 -> 10.96.0.10:80 now TCP 10.1.1.2:2001 -> 10.1.2.2:8081: Service prod/web, pod prod/web"},
		3:  nil,
		15: {"a session of nat44, TCP 10.1.1.2:2001 -> 10.96.0.10:80 now TCP 10.1.1.2:2001 -> 10.1.2.2:8081: Service prod/web, pod prod/web"},
	} {
		a := &Answer{}
		if p.describePath(a, &all[number-1], known); !slices.Equal(a.Left, want) {
			t.Errorf("packet %d:\n got %q\nwant %q", number, a.Left, want)
		}
	}
}
