package vppagent_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/keyed"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestHalfDoneIsLookedAt has the second request of a NAT interface refused, so that nobody knows its roles, and then changes
// the interface only: the roles come into the plan by following it, and are to be dumped before they are changed. VPP
// forgets a role that is removed though it is not set, but not its feature.
func TestHalfDoneIsLookedAt(t *testing.T) {
	tap := func(host string) proto.Message {
		return &interfaces.Interface{
			Name: "i", Type: interfaces.Interface_TAP, PhysAddress: "02:00:00:00:00:09", Enabled: true,
			Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{HostIfName: host}},
		}
	}
	roles := func(inside, outside bool) proto.Message {
		return &nat.Nat44Interface{Name: "i", NatInside: inside, NatOutside: outside}
	}
	type change = map[string]proto.Message
	iface, role := keyed.InterfaceKey("i"), keyed.Key(roles(true, true))
	for _, c := range []struct {
		name          string
		refused, then change
	}{
		{"comes back", change{role: roles(true, false), iface: nil}, change{iface: tap("vpp1")}},
		{"goes", change{role: nil}, change{iface: nil}},
		{"made anew", change{role: &nat.Nat44Interface{Name: "i", OutputFeature: true}}, change{iface: tap("vpp2")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, vppagent.Config{})
			pods(l)
			l.allConfigured(l.put(&nat.Nat44Global{}, tap("vpp1"), roles(true, true)))
			requests := 0
			l.sim.Fail(func(name string) (retval int32, lost bool) {
				if name == "nat44_interface_add_del_feature" {
					if requests++; requests == 2 {
						return -1, false
					}
				}
				return 0, false
			})
			if half := l.commit(c.refused); requests < 2 {
				t.Fatalf("nothing was refused:\n%s", statuses(half))
			}
			l.sim.Fail(nil)
			l.allConfigured(l.commit(c.then))
			if got, want := canonical(l.sim.Dump()), canonical(fresh(t, l.want)); got != want {
				t.Fatalf("got:\n%s\nwant:\n%s\nwrites:\n%s", got, want, strings.Join(l.writes(), "\n"))
			}
			l.writes()
			l.allConfigured(l.resync())
			l.quiet("resync")
		})
	}
}

// TestUntaggedIsLookedAt loses the connection and the agent after VPP made a loopback, and before it was tagged. Once it is
// found by its MAC it is ours, and so are its addresses, which were not asked for before: that must not hide those of others.
func TestUntaggedIsLookedAt(t *testing.T) {
	loopback := func(name, mac string, addresses ...string) proto.Message {
		return &interfaces.Interface{Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, PhysAddress: mac, IpAddresses: addresses, Vrf: 7}
	}
	l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
	pods(l)
	l.allConfigured(l.put(&l3.VrfTable{Id: 7}, loopback("loop", "02:00:00:00:00:00", "10.9.1.1/24", "10.9.2.1/24")))
	l.sim.Fail(func(name string) (retval int32, lost bool) { return 0, name == "sw_interface_tag_add_del" })
	c := l.put(loopback("loop", "02:00:00:00:00:00", "10.9.2.1/24"), loopback("lap", "02:00:00:00:00:01"))
	if !errors.Is(c.Err, vpp.ErrDisconnected) {
		t.Fatalf("the connection was not lost: %v", c.Err)
	}
	l.sim.Fail(nil)
	l.reconnect()
	l.restartAgent()
	l.allConfigured(l.resync())
	if got, want := canonical(l.sim.Dump()), canonical(fresh(t, l.want)); got != want {
		t.Fatalf("got:\n%s\nwant:\n%s\nwrites:\n%s", got, want, strings.Join(l.writes(), "\n"))
	}
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
}
