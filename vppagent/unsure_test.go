package vppagent_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/nat44_ed"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestHalfDoneIsLookedAt: VPP refuses the second request of a NAT interface, so that its roles are unknown. Then only the
// interface changes: the roles join the plan after it, and are to be dumped before they change. VPP drops a role that is removed
// though it is not set, but keeps its feature.
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
	iface, role := kv.InterfaceKey("i"), kv.Key(roles(true, true))
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

// TestBothRolesOrNone: an interface that is to have both roles of NAT has none if VPP refuses either: outside alone makes a session
// of every flow, and with inside alone outgoing packets get the node's address. Inside is added first, and outside is removed first.
func TestBothRolesOrNone(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	pods(l)
	l.allConfigured(l.put(&nat.Nat44Global{}))
	for n := 1; n <= 2; n++ {
		requests := 0
		l.sim.Fail(func(name string) (retval int32, lost bool) {
			if name == "nat44_interface_add_del_feature" {
				if requests++; requests == n {
					return -1, false
				}
			}
			return 0, false
		})
		role := &nat.Nat44Interface{Name: "tap1", NatInside: true, NatOutside: true}
		l.put(role)
		l.sim.Fail(nil)
		if d := l.sim.Dump(); requests != 3 || strings.Contains(d, "inside") || strings.Contains(d, "outside") {
			t.Errorf("request %d of %d was refused:\n%s", n, requests, d)
		}
		l.writes()
		l.allConfigured(l.put(role))
		l.allConfigured(l.del(kv.Key(role)))
		order := strings.Join(l.writes(), "\n")
		for _, word := range []string{"is_add=true", "NAT_IS_INSIDE", "NAT_IS_OUTSIDE", "NAT_IS_OUTSIDE", "NAT_IS_INSIDE"} {
			_, rest, ok := strings.Cut(order, word)
			if !ok {
				t.Fatalf("%s is not where it should be: %s", word, order)
			}
			order = rest
		}
	}
}

// TestUntaggedIsLookedAt loses the connection and the agent after VPP made a loopback, and before it was tagged. The next agent
// finds it by its MAC, so the loopback is ours, and so are its addresses, which were not dumped before: the repetition must not
// hide foreign objects.
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

// TestUntaggedIsRemoved: VPP refuses the tag of a loopback, which is to be removed then. The transaction is divided, and the removal left for later.
// Meanwhile the agent dumps access lists, and the list of interfaces, which does not show whose the loopback is.
func TestUntaggedIsRemoved(t *testing.T) {
	l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal"), Stall: time.Nanosecond, Pause: func(context.Context, time.Duration) {}})
	l.step()
	pods(l)
	permit := rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80, 80)
	l.allConfigured(l.put(accessList("one", permit), accessList("two", permit), lists("tap1", []string{"one"}, nil), lists("tap2", []string{"one"}, nil)))
	before := l.sim.Dump()
	refuse := func(request string) {
		l.sim.Fail(func(name string) (retval int32, lost bool) {
			if name == request {
				retval = -1
			}
			return retval, false
		})
	}
	loop := &interfaces.Interface{Name: "loop", Type: interfaces.Interface_SOFTWARE_LOOPBACK}
	refuse("sw_interface_tag_add_del")
	l.put(loop)
	refuse("acl_add_replace")
	l.put(accessList("three"))
	l.sim.Fail(nil)
	c := l.commit(map[string]proto.Message{kv.Key(loop): nil, kv.Key(lists("tap1", nil, nil)): lists("tap1", []string{"two"}, nil), kv.Key(lists("tap2", nil, nil)): lists("tap2", []string{"two"}, nil)})
	if !slices.Contains(c.Left, kv.Key(loop)) {
		t.Fatalf("left: %v", c.Left)
	}
	l.del(kv.Key(accessList("three"))) // dumps access lists
	l.put(lists("tap1", []string{"one"}, nil), lists("tap2", []string{"one"}, nil))
	for l.step() {
	}
	if got := l.sim.Dump(); got != before {
		t.Errorf("got:\n%s\nwant:\n%s\n%s", got, before, l.agent.Snapshot().History)
	}
}

// TestPoolTakenOverInPart has a pool take over the address of a removed pool, and loses the connection before or while it gets
// the other addresses: the address was ours and stays so, and is removed with the pool. A foreign address stays, unless the agent
// changed it.
func TestPoolTakenOverInPart(t *testing.T) {
	pool := func(name, last string) proto.Message {
		return &nat.Nat44AddressPool{Name: name, VrfId: ^uint32(0), FirstIp: "192.168.0.1", LastIp: last}
	}
	small, big := pool("small", "192.168.0.1"), pool("big", "192.168.0.2")
	for _, c := range []struct {
		name, lost      string // the request
		theirs, restart bool
		addresses       string // addresses in VPP at the end
	}{
		{name: "before", lost: "nat44_forwarding_enable_disable"},
		{name: "before, restarted", lost: "nat44_forwarding_enable_disable", restart: true},
		{name: "while", lost: "nat44_add_del_address_range"},
		{name: "while, restarted", lost: "nat44_add_del_address_range", restart: true},
		{name: "theirs, before", lost: "nat44_forwarding_enable_disable", theirs: true, addresses: "nat44 pool 192.168.0.1"},
		{name: "theirs, before, restarted", lost: "nat44_forwarding_enable_disable", theirs: true, restart: true, addresses: "nat44 pool 192.168.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
			pods(l)
			l.allConfigured(l.put(&nat.Nat44Global{}))
			if c.theirs {
				theirs := &nat44_ed.Nat44AddDelAddressRange{FirstIPAddress: [4]byte{192, 168, 0, 1}, LastIPAddress: [4]byte{192, 168, 0, 1}, VrfID: ^uint32(0), IsAdd: true}
				if r := l.conn.Do(t.Context(), vpp.Call{Msg: theirs})[0]; r.Err != nil {
					t.Fatal(r.Err)
				}
			} else {
				l.allConfigured(l.put(small))
			}
			l.sim.Fail(func(name string) (retval int32, lost bool) { return 0, name == c.lost })
			delete(l.want, kv.Key(small))
			l.want.Put(big)
			l.want.Put(&nat.Nat44Global{Forwarding: true}) // precedes pools
			if c := l.resync(); !errors.Is(c.Err, vpp.ErrDisconnected) {
				t.Fatalf("the connection was not lost: %v", c.Err)
			}
			l.sim.Fail(nil)
			l.reconnect()
			if c.restart {
				l.restartAgent()
			}
			delete(l.want, kv.Key(big))
			l.allConfigured(l.resync())
			var left []string
			for line := range strings.Lines(l.sim.Dump()) {
				if strings.HasPrefix(line, "nat44 pool") {
					left = append(left, strings.TrimSpace(line))
				}
			}
			if got := strings.Join(left, ", "); got != c.addresses {
				t.Errorf("there is %q, want %q\n%s", got, c.addresses, strings.Join(l.writes(), "\n"))
			}
		})
	}
}

// TestReplacedListIsRemovedInTheEnd: VPP refuses to delete access lists that were replaced beside. Then the interface that used their
// successors gets no lists any more: the successors join that plan late, and the deletions must still be repeated.
func TestReplacedListIsRemovedInTheEnd(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := newLab(t, vppagent.Config{Now: func() time.Time { return now }})
	pods(l)
	permit, deny := rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80, 80), rule(acl.ACL_Rule_DENY, "tcp", "", "", 80, 80)
	both := lists("tap1", []string{"one", "two"}, nil)
	l.allConfigured(l.put(accessList("one", permit), accessList("two", deny), both))
	refused := 0
	l.sim.Fail(func(name string) (retval int32, lost bool) {
		if name == "acl_del" {
			refused++
			return -1, false
		}
		return 0, false
	})
	l.put(accessList("one", deny), accessList("two", permit))
	l.sim.Fail(nil)
	if refused != 2 {
		t.Fatalf("VPP refused %d deletions", refused)
	}
	l.commit(map[string]proto.Message{kv.Key(both): nil})
	now = now.Add(time.Hour)
	l.step()
	if dump := l.sim.Dump(); strings.Count(dump, "\nacl ") != 2 {
		t.Errorf("replaced access lists are still there:\n%s\n%s", dump, l.agent.Snapshot().History)
	}
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
}
