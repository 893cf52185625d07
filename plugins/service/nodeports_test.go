package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
)

func TestNodePortAddresses(t *testing.T) {
	addrs := addrs("192.168.16.1", "10.0.0.1", "fd00:16::1", "fd00:17::1")
	for text, want := range map[string]string{
		"":                             "192.168.16.1 10.0.0.1 fd00:16::1 fd00:17::1",
		"primary":                      "192.168.16.1 fd00:16::1",
		"10.1.2.3/8":                   "10.0.0.1",
		"192.168.16.1/32,fd00:17::/32": "192.168.16.1 fd00:17::1",
		"0.0.0.0/0":                    "192.168.16.1 10.0.0.1",
		"172.16.0.0/12":                "",
	} {
		var list []string
		if text != "" {
			list = strings.Split(text, ",")
		}
		c, err := ParseNodePortAddresses(list)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range c.selectAddrs(addrs) {
			got = append(got, a.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
	for _, bad := range [][]string{{"primary", "10.0.0.0/8"}, {"10.0.0.1"}, {""}, {"10.0.0.0/8", "x"}} {
		if c, err := ParseNodePortAddresses(bad); err == nil {
			t.Errorf("%q: %+v", bad, c)
		}
	}
}

// Renderers receive the selected addresses of all nodes. A node without any has a note, and still owns its addresses.
func TestNodePortsOnSomeAddresses(t *testing.T) {
	p, r := newTest(t)
	p.cfg.NodePorts.CIDRs = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}
	apply(p, node(1, "192.168.16.1", "10.0.0.1"), node(2, "192.168.16.2", "10.0.0.2"))
	apply(p, cluster("b", "10.96.0.2", withExternal("10.0.0.1", "192.168.16.1")), cluster("a", "10.96.0.1", withNodePort(80)))
	_ = p.Flush()
	if got, want := fmt.Sprint(p.state.NoNodePorts), "[10.0.0.1 10.0.0.2]"; got != want {
		t.Errorf("without node ports %s, want %s", got, want)
	}
	if got := servedOf(r, "b"); got != "[10.96.0.2][][]" {
		t.Errorf("b is served at %s", got)
	}
	if got := reasons(p.Notes()); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "Node") }) {
		t.Errorf("notes %v", got)
	}
	apply(p, node(1, "10.0.0.1"))
	_ = p.Flush()
	want := []string{
		"Node node-1: node ports are not served on this node: none of its addresses is among those chosen for node ports",
		"Service default/b: external IP 10.0.0.1 is not served: it is the address of a node",
	}
	if diff := cmp.Diff(want, reasons(p.Notes())); diff != "" {
		t.Errorf("notes -want +got\n%s", diff)
	}
	if got := servedOf(r, "b"); got != "[10.96.0.2][192.168.16.1][]" {
		t.Errorf("192.168.16.1 is no node's any more, b is served at %s", got)
	}
}

// The first address of another node changes: renderers receive only that.
func TestPrimaryOfAnotherNode(t *testing.T) {
	p, r := newTest(t)
	p.cfg.NodePorts.Primary = true
	apply(p, node(1, "192.168.16.1"), node(2, "192.168.16.2", "10.0.0.2"), cluster("a", "10.96.0.1", withNodePort(30080)))
	_ = p.Flush()
	r.take()
	apply(p, node(2, "10.0.0.2", "192.168.16.2"))
	flush(t, p, r, "node")
	if got, want := fmt.Sprint(p.state.NoNodePorts), "[192.168.16.2]"; got != want {
		t.Errorf("without node ports %s, want %s", got, want)
	}
}

func TestKeepTerminating(t *testing.T) {
	type e = model.Endpoint
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 1, n}) }
	ready := e{Addr: at(1), Ready: true, Serving: true, NodeName: "node-1", Zone: "a"}
	far := e{Addr: at(2), Ready: true, Serving: true, NodeName: "node-2", Zone: "b"}
	ends := e{Addr: at(3), Serving: true, Terminating: true, NodeName: "node-1", Zone: "a"}
	farEnds := e{Addr: at(4), Serving: true, Terminating: true, NodeName: "node-2", Zone: "b"}
	ended := e{Addr: at(5), Terminating: true, NodeName: "node-1", Zone: "a"}
	starts := e{Addr: at(6), Serving: true, NodeName: "node-1", Zone: "a"}
	zoned := func(x e) e { x.ForZones = []string{x.Zone}; return x }
	hinted := func(x e) e { x.ForNodes = []string{x.NodeName}; return x }
	for _, tc := range []struct {
		name                                   string
		eps                                    []e
		removeWide, removeNear, keepWide, near string
	}{
		{"beside ready ones", []e{ready, far, ends, farEnds, ended, starts}, "1 2", "1", "1 2 3 4", "1 3"},
		{"none is ready", []e{ends, farEnds, ended}, "3 4", "3", "3 4", "3"},
		{"none is ready here", []e{far, ends, farEnds}, "2", "3", "2 3 4", "3"},
		{"by zone", []e{zoned(ready), zoned(far), ends, farEnds}, "1", "1", "1 3", "1 3"},
		{"by node", []e{hinted(ready), hinted(far), ends, farEnds}, "1", "1", "1 3", "1 3"},
		{"hints of others", []e{zoned(far), ends, farEnds}, "2", "3", "2 3 4", "3"},
	} {
		for _, keep := range []bool{false, true} {
			all, eps := make([]endpoint, len(tc.eps)), make([]candidate, len(tc.eps))
			for i := range tc.eps {
				all[i] = endpoint{Endpoint: &tc.eps[i], local: tc.eps[i].NodeName == "node-1"}
				eps[i] = candidate{at: i, port: 1}
			}
			categorize(all, eps, surroundings{node: "node-1", zone: "a", keepTerminating: keep})
			var wide, near []string
			for _, c := range eps {
				n := fmt.Sprint(all[c.at].Addr.As4()[3])
				if c.wide {
					wide = append(wide, n)
				}
				if c.near {
					near = append(near, n)
				}
			}
			wantWide, wantNear := tc.removeWide, tc.removeNear
			if keep {
				wantWide, wantNear = tc.keepWide, tc.near
			}
			if strings.Join(wide, " ") != wantWide || strings.Join(near, " ") != wantNear {
				t.Errorf("%s, keep %t: cluster %v local %v, want %s and %s", tc.name, keep, wide, near, wantWide, wantNear)
			}
		}
	}
}
