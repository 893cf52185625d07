package conflict

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

func pod(n int) *Hook {
	return &Hook{Name: fmt.Sprint("pod", n), Addrs: []netip.Addr{addr(n)}, Checked: true}
}

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

var (
	uplink  = &Hook{Name: "uplink"}
	hairpin = addr(254)
	world   = &World{StandIns: []netip.Addr{hairpin}, Dialled: DialledIn([]dataplane.Outer{
		{Addr: addr(200), Backends: []netip.AddrPort{netip.AddrPortFrom(addr(2), 80)}},
	})}
)

// shiftOf is "in" or "out", "+" or "-", and numbers of peers ("*": all).
func shiftOf(text string, h ...*Hook) *Shift {
	f := strings.Fields(text)
	s := &Shift{Table: "t", Output: f[0] == "out", Opens: f[1] == "+", Hooks: h, Peers: Everything()}
	if f[2] != "*" {
		var list []netip.Addr
		for _, n := range f[2:] {
			var i int
			fmt.Sscan(n, &i)
			list = append(list, addr(i))
		}
		s.Peers = Addrs(list)
	}
	return s
}

func egress(s *Shift) *Shift { s.Egress = true; return s }

func forged(n int) *Hook { h := pod(n); h.Checked = false; return h }

// TestTorn: an input and an output conflict if one opens and the other closes for one packet, by its source and its destination.
func TestTorn(t *testing.T) {
	for _, c := range []struct {
		what   string
		change []*Shift
		want   string
	}{
		{"egress closes to a pod that opens to it", []*Shift{shiftOf("in - 2", pod(1)), shiftOf("out + 1", pod(2))}, "pod1 pod2"},
		{"egress opens to a pod that closes to it", []*Shift{shiftOf("in + 2", pod(1)), shiftOf("out - 1", pod(2))}, "pod1 pod2"},
		{"another destination", []*Shift{shiftOf("in - 3", pod(1)), shiftOf("out + 1", pod(2))}, ""},
		{"another source", []*Shift{shiftOf("in - 2", pod(1)), shiftOf("out + 3", pod(2))}, ""},
		{"both open", []*Shift{shiftOf("in + 2", pod(1)), shiftOf("out + 1", pod(2))}, ""},
		{"both are inputs", []*Shift{shiftOf("in + 2", pod(1)), shiftOf("in - 2", pod(2))}, ""},
		{"the same pod", []*Shift{shiftOf("in - *", pod(1)), shiftOf("out + *", pod(1))}, ""},
		{"a pod that is one of the hooks", []*Shift{shiftOf("in - *", pod(1), pod(2)), shiftOf("out + 2", pod(1))}, "pod1 pod2"},
		{"an address that stands in for clients", []*Shift{shiftOf("in - 2", pod(1)), shiftOf("out + 254", pod(2))}, "pod1 pod2"},
		{"an address that NAT replaces", []*Shift{shiftOf("in - 200", pod(1)), shiftOf("out + 1", pod(2))}, "pod1 pod2"},
		{"an address that NAT replaces by another one", []*Shift{shiftOf("in - 200", pod(1)), shiftOf("out + 1", pod(3))}, ""},
		{"sources are not checked", []*Shift{shiftOf("in - 3", forged(1)), shiftOf("out + 9", pod(2))}, "pod1 pod2"},
		{"egress twice", []*Shift{egress(shiftOf("in - *", pod(1))), egress(shiftOf("out + *", uplink))}, ""},
		{"egress twice, sources are not checked", []*Shift{egress(shiftOf("in - *", forged(1))), egress(shiftOf("out + *", uplink))}, "pod1 uplink"},
		{"egress again, and what lets services pass", []*Shift{shiftOf("in + *", pod(1)), egress(shiftOf("out - 1", pod(2)))}, "pod1 pod2"},
		{"another source's egress again", []*Shift{shiftOf("in + *", pod(1)), egress(shiftOf("out - 3", pod(2)))}, ""},
		{"where packets leave the node", []*Shift{shiftOf("in + 77", pod(1)), shiftOf("out - 1", uplink)}, "pod1 uplink"},
		{"no packet", []*Shift{shiftOf("in + *", pod(1)), {Output: true, Hooks: []*Hook{uplink}}}, ""},
	} {
		if got := names(world.Torn(c.change, nil)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func names(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), " ")
}

// TestWaiting: openings wait for closings that VPP may lack, for closings that wait, and with interfaces that have a list in common.
func TestWaiting(t *testing.T) {
	late := &Log{}
	late.Add([]*Shift{shiftOf("in - 2", pod(1)), shiftOf("in + 5", pod(1))})
	change := []*Shift{shiftOf("out + 1", pod(2)), shiftOf("out + 1", pod(5)), shiftOf("in - 6", pod(4)), shiftOf("out + 4", pod(6)), shiftOf("in + *", pod(7))}
	joint := map[string][]string{"list": {"pod2", "pod4"}}
	for i, c := range []struct {
		late    *Log
		joint   map[string][]string
		already map[string]bool
		want    string
	}{
		{&Log{}, joint, nil, ""},
		{late, nil, nil, "pod2"},
		{late, joint, nil, "pod2 pod4 pod6"}, // pod 4 waits with pod 2, and pod 6 opens what pod 4 closes
		{&Log{}, nil, map[string]bool{"pod4": true}, "pod4 pod6"},
	} {
		waits := world.Waiting(change, c.late, c.joint, c.already)
		if got := names(waits); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
		if got := names(world.Torn(change, waits)); strings.Contains(c.want, "pod4") == (got != "") {
			t.Errorf("%d: %q is torn, %q waits", i, got, c.want)
		}
	}
	late.Age()
	if got := names(world.Waiting(change, late, nil, nil)); got != "pod2" {
		t.Errorf("after one acknowledgement %q", got)
	}
	late.Age()
	if got := names(world.Waiting(change, late, nil, nil)); got != "" {
		t.Errorf("after two acknowledgements %q", got)
	}
}

// TestLogJoins: closings of one table at the same interfaces are one entry, with all their peers.
func TestLogJoins(t *testing.T) {
	late := &Log{}
	for n := range 100 {
		late.Add([]*Shift{shiftOf(fmt.Sprint("in - ", n), pod(1), pod(2)), shiftOf(fmt.Sprint("in - ", n), pod(2), pod(1))})
	}
	all := late.closings()
	if len(all) != 1 || len(all[0].Peers.separated()) != 100 || !all[0].Peers.covers(addr(50)) || all[0].Peers.covers(addr(100)) {
		t.Errorf("%d entries: %+v", len(all), all)
	}
}

// TestPeersHaveTheirAddresses compares sets with lists of prefixes.
func TestPeersHaveTheirAddresses(t *testing.T) {
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		bits := rapid.IntRange(0, 32).Draw(t, "bits")
		if rapid.Bool().Draw(t, "IPv6") {
			return netip.PrefixFrom(netip.AddrFrom16([16]byte{15: byte(rapid.IntRange(0, 15).Draw(t, "addr"))}), 96+bits).Masked()
		}
		return netip.PrefixFrom(addr(rapid.IntRange(0, 15).Draw(t, "addr")), bits).Masked()
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(prefix, 0, 5).Draw(t, "a"), rapid.SliceOfN(prefix, 0, 5).Draw(t, "b")
		one, both := PeersOf(a...), PeersOf(a...).with(PeersOf(b...))
		for n := range 20 {
			for _, x := range []netip.Addr{addr(n), netip.AddrFrom16([16]byte{15: byte(n)})} {
				in := func(p netip.Prefix) bool { return p.Contains(x) }
				if one.covers(x) != slices.ContainsFunc(a, in) || both.covers(x) != slices.ContainsFunc(slices.Concat(a, b), in) {
					t.Fatalf("%s: %v, with the others %v", x, one.covers(x), both.covers(x))
				}
			}
		}
	})
}

// TestLeading: the interfaces that open for packets to an address: where they enter and are sent to it, and where they leave.
func TestLeading(t *testing.T) {
	change := []*Shift{
		shiftOf("in + 2", pod(1)), shiftOf("in - 2", pod(3)), shiftOf("in + 4", pod(5)),
		shiftOf("out + 9", pod(2)), shiftOf("out - 9", pod(4)), shiftOf("out + 9", pod(6), uplink),
		{Output: true, Opens: true, Hooks: []*Hook{pod(7)}},
	}
	for _, c := range []struct {
		to   []netip.Addr
		want string
	}{
		{nil, ""},
		{[]netip.Addr{addr(2)}, "pod1 pod2 uplink"},
		{[]netip.Addr{addr(4), addr(6)}, "pod5 pod6 uplink"},
		{[]netip.Addr{addr(7)}, "uplink"},
		{[]netip.Addr{{}}, "pod1 pod2 pod5 pod6 uplink"},
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(world.Leading(change, c.to))), " "); got != c.want {
			t.Errorf("to %v: %s, want %s", c.to, got, c.want)
		}
	}
}
