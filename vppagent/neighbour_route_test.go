package vppagent_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestNeighbourIsNoRoute: VPP refuses the route to a pod and accepts its neighbour. The host route that VPP makes of the neighbour is not taken for the
// refused route, and is none that another client would have.
func TestNeighbourIsNoRoute(t *testing.T) {
	for _, addr := range []string{"10.1.1.2", "fd00:1::2"} {
		l := newLab(t, vppagent.Config{})
		pods(l)
		prefix := addr + "/32"
		if strings.Contains(addr, ":") {
			prefix = addr + "/128"
		}
		l.sim.RemoveRoute(0, netip.MustParsePrefix(prefix))
		route := &l3.Route{DstNetwork: prefix, NextHopAddr: addr, OutgoingInterface: "tap1"}
		near := &l3.ARPEntry{Interface: "tap1", IpAddress: addr, PhysAddress: "02:00:00:00:00:01", Static: true}
		l.sim.Fail(func(name string) (int32, bool) {
			if strings.HasPrefix(name, "ip_route_add") {
				return -1, false
			}
			return 0, false
		})
		c := l.put(route, near)
		if got := statuses(c); !strings.Contains(got, kv.Key(near)+" "+event.Configured.String()) || !strings.Contains(got, kv.Key(route)+" "+event.Retrying.String()) {
			t.Fatalf("%s: a refused route beside its neighbour:\n%s", addr, got)
		}
		l.sim.Fail(nil)
		l.writes()
		l.allConfigured(l.resync())
		if w := fmt.Sprint(l.writes()); !strings.Contains(w, "ip_route_add_del is_add=true") {
			t.Errorf("%s: the route is not made: %s", addr, w)
		}
		l.restartAgent()
		l.allConfigured(l.resync())
		l.quiet("the route is beside its neighbour")
	}
}

// TestVPPNeighbourIsNoRoute: VPP numbers the source of the host route that it makes of a neighbour as the agent expects. The agent adds the route to the same address
// beside it, and finds that one.
func TestVPPNeighbourIsNoRoute(t *testing.T) {
	w := &witness{conn: realVPP(t, 0, "")}
	near, all := kv.Values{}, kv.Values{}
	loop := &interfaces.Interface{Name: "one", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, IpAddresses: []string{"10.9.0.1/32", "fd00:9::1/128"}}
	for _, of := range []kv.Values{near, all} {
		of.Put(loop)
		for _, addr := range []string{"10.1.1.2", "fd00:1::2"} {
			of.Put(&l3.ARPEntry{Interface: "one", IpAddress: addr, PhysAddress: "02:00:00:00:00:01", Static: true})
		}
	}
	all.Put(&l3.Route{DstNetwork: "10.1.1.2/32", NextHopAddr: "10.1.1.2", OutgoingInterface: "one"})
	all.Put(&l3.Route{DstNetwork: "fd00:1::2/128", NextHopAddr: "fd00:1::2", OutgoingInterface: "one"})
	commit := func(what string, values kv.Values, writes int) {
		t.Helper()
		c := vppagent.New(vppagent.Config{Caller: w}).Commit(t.Context(), &event.Txn{Resync: event.Full, Values: values})
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		if writes >= 0 && c.Writes != writes {
			t.Errorf("%s: %d writes instead of %d:\n%s", what, c.Writes, writes, statuses(c))
		}
	}
	commit("the neighbours", near, -1)
	commit("the neighbours again", near, 0)
	commit("their routes", all, 2)
	commit("all again", all, 0)
}

// TestListsStayWithTheirNeighbour: VPP refuses to remove a neighbour. The access lists of its interface stay until it is removed: VPP still sends packets to it.
func TestListsStayWithTheirNeighbour(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	bare := l.sim.Dump()
	near := &l3.ARPEntry{Interface: "one", IpAddress: "10.1.1.2", PhysAddress: "02:00:00:00:00:01", Static: true}
	all := []proto.Message{
		&interfaces.Interface{Name: "one", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true},
		accessList("web", rule(acl.ACL_Rule_DENY, "", "", "")), lists("one", nil, []string{"web"}), near,
	}
	l.allConfigured(l.put(all...))
	var keys []string
	for _, m := range all {
		keys = append(keys, kv.Key(m))
	}
	l.sim.Fail(func(name string) (int32, bool) {
		if name == "ip_neighbor_add_del" {
			return -1, false
		}
		return 0, false
	})
	l.writes()
	l.del(keys...)
	for _, w := range l.writes() {
		if strings.HasPrefix(w, "acl_interface_set_acl_list") {
			t.Errorf("the neighbour is in VPP: %s", w)
		}
	}
	l.sim.Fail(nil)
	l.allConfigured(l.resync())
	if got := l.sim.Dump(); got != bare {
		t.Errorf("left:\n%s", got)
	}
}
