package beside

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

func head(src string, sport uint16, dst string, dport uint16) hops.Header {
	return hops.Header{Protocol: "TCP", Source: src, SourcePort: sport, Destination: dst, DestinationPort: dport, TTL: 64}
}

// toService is the path of a packet to a Service: allowed, translated, sent.
func toService(policy string, rule int, to hops.Header, out string) []hops.Hop {
	came := head("10.1.1.2", 2001, "10.96.0.10", 80)
	return []hops.Hop{
		{Node: "node-1", GraphNode: "ip4-input", Kind: hops.Input, Interface: "pod-prod/a", Packet: &came},
		{Node: "node-1", Kind: hops.AccessList, Interface: "pod-prod/a", Direction: "input", ACL: &hops.ACL{Rule: rule, Permit: true}, Decision: &flows.Decision{Text: policy}},
		{Node: "node-1", Kind: hops.Other, Text: "reassembly"},
		{Node: "node-1", Kind: hops.NAT44, Translation: &hops.Translation{Before: came, After: to}},
		{Node: "node-1", Kind: hops.Lookup},
		{Node: "node-1", Kind: hops.Output, Interface: out, Packet: &to},
		{Node: "node-2", GraphNode: "ip4-input", Kind: hops.Input, Interface: "overlay", Packet: &to},
	}
}

func TestCompare(t *testing.T) {
	backend, other := head("10.1.1.2", 2001, "10.1.2.2", 8080), head("10.1.1.2", 2001, "10.1.2.3", 8080)
	hidden, hidden2 := head("192.168.16.1", 5001, "10.1.2.2", 8080), head("192.168.16.1", 5002, "10.1.2.2", 8080)
	predicted := toService("allowed by a", 1, backend, "overlay")
	session := toService("", -1, backend, "overlay")
	session[1].ACL.Session, session[1].Decision = true, nil
	denied := toService("denied by b", 2, backend, "overlay")[:2]
	denied[1].ACL.Permit, denied[1].Dropped = false, true
	lost := append(toService("allowed by a", 1, backend, "overlay")[:5], hops.Hop{Node: "node-1", GraphNode: "ip4-drop", Text: "drop", Dropped: true})
	unlisted := toService("allowed by a", 1, backend, "overlay")
	unlisted = append(unlisted[:1:1], unlisted[2:]...)
	for _, c := range []struct {
		name      string
		predicted []hops.Hop
		vpp       []hops.Hop
		differs   int // the row; -1: equal
		rows      int
	}{
		{"equal", predicted, toService("allowed by a", 1, backend, "overlay"), -1, 4},
		{"the overlay is the uplink", predicted, toService("allowed by a", 1, backend, "uplink"), -1, 4},
		{"a session passes it", predicted, session, -1, 4},
		{"another rule of the same policy", predicted, toService("allowed by a", 3, backend, "overlay"), -1, 4},
		{"the same rule, not explained", predicted, toService("", 1, backend, "overlay"), -1, 4},
		{"another rule", predicted, toService("", 2, backend, "overlay"), 1, 4},
		{"another backend", predicted, toService("allowed by a", 1, other, "overlay"), 2, 4},
		{"another interface", predicted, toService("allowed by a", 1, backend, "pod-prod/x"), 3, 4},
		{"denied", predicted, denied, 1, 4},
		{"no list", predicted, unlisted, 1, 4},
		{"lost", predicted, lost, 3, 4},
		{"NAT draws another port", toService("allowed by a", 1, hidden, "uplink"), toService("allowed by a", 1, hidden2, "uplink"), -1, 4},
		{"no translation", predicted, toService("allowed by a", 1, backend, "overlay")[:2], 2, 4},
	} {
		rows, equal := Compare("node-1", c.predicted, c.vpp)
		at := -1
		for i, r := range rows {
			if r.Differs {
				at = i
			}
		}
		if at != c.differs || equal != (c.differs < 0) || len(rows) != c.rows {
			t.Errorf("%s: row %d differs, equal %t, want row %d: %+v", c.name, at, equal, c.differs, rows)
		}
		if want := c.differs; want >= 0 && Agree("node-1", c.predicted, c.vpp) != want {
			t.Errorf("%s: they agree about %d acts, want %d", c.name, Agree("node-1", c.predicted, c.vpp), want)
		}
	}
}

// VPP answers a packet with an ICMP error, whichever way the two paths show it.
func TestCompareICMPErrors(t *testing.T) {
	came := head("10.1.1.2", 2001, "10.96.0.11", 80)
	input := hops.Hop{Node: "node-1", Kind: hops.Input, Interface: "pod-prod/a", Packet: &came}
	back := head("10.1.1.1", 0, "10.1.1.2", 0)
	predicted := []hops.Hop{input, {Node: "node-1", GraphNode: "ip4-icmp-error", Kind: hops.Other}, {Node: "node-1", Kind: hops.Output, Interface: "pod-prod/a", Packet: &back}}
	vpp := []hops.Hop{input, {Node: "node-1", GraphNode: "ip4-icmp-error", Kind: hops.Other, Dropped: true}}
	if rows, equal := Compare("node-1", predicted, vpp); !equal || len(rows) != 2 {
		t.Errorf("%+v", rows)
	}
}
