package bridge

import (
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/l2"
)

const all = l2.BRIDGE_API_FLAG_LEARN | l2.BRIDGE_API_FLAG_FWD | l2.BRIDGE_API_FLAG_FLOOD | l2.BRIDGE_API_FLAG_UU_FLOOD

// TestSwitch: ports 1 and 2 are hosts', 3 and 4 tunnels of one split-horizon group, 5 is the BVI.
func TestSwitch(t *testing.T) {
	host := func(n byte) MAC { return MAC{2, 0, 0, 0, 0, n} }
	broadcast := MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	table := New()
	d := table.Add(&Domain{ID: 7, Flags: all})
	for i := uint32(1); i <= 5; i++ {
		p := Port{Mode: Member, Domain: d}
		if i == 3 || i == 4 {
			p.Group = 1
		}
		table.Set(i, host(byte(i)), p, i == 5)
	}
	table.FIB[Key{d.Index, host(66)}] = Entry{Interface: None, Static: true, Filter: true}
	for _, c := range []struct {
		what     string
		in       uint32
		src, dst MAC
		want     []uint32
		drop     bool
	}{
		{"a broadcast", 1, host(11), broadcast, []uint32{2, 3, 4, 5}, false},
		{"a broadcast out of a tunnel", 3, host(33), broadcast, []uint32{1, 2, 5}, false},
		{"to a host that was heard", 2, host(22), host(11), []uint32{1}, false},
		{"to a host behind a tunnel", 2, host(22), host(33), []uint32{3}, false},
		{"from tunnel to tunnel", 4, host(44), host(33), nil, true},
		{"to the BVI", 1, host(11), host(5), []uint32{5}, false},
		{"to nobody known", 1, host(11), host(99), []uint32{2, 3, 4, 5}, false},
		{"to a filtered address", 1, host(11), host(66), nil, true},
		{"to its own port", 1, host(12), host(11), nil, true},
		{"the host moves", 2, host(11), broadcast, []uint32{1, 3, 4, 5}, false},
		{"to where it is now", 1, host(12), host(11), []uint32{2}, false},
	} {
		got, why := table.Switch(c.in, c.src, c.dst)
		if !slices.Equal(got, c.want) || c.drop != (why != "") {
			t.Errorf("%s: got %v (%s), want %v", c.what, got, why, c.want)
		}
	}
	d.Flags = l2.BRIDGE_API_FLAG_FWD
	if got, why := table.Switch(1, host(77), broadcast); got != nil || why == "" {
		t.Errorf("flooded to %v without the flag", got)
	}
	if _, known := table.FIB[Key{d.Index, host(77)}]; known {
		t.Error("learned without the flag")
	}
	table.Set(1, host(1), Port{Mode: CrossConnect, Peer: 9}, false)
	if got, _ := table.Switch(1, host(1), host(2)); !slices.Equal(got, []uint32{9}) {
		t.Errorf("cross-connect: %v", got)
	}
	if slices.Contains(d.Members, 1) {
		t.Error("a cross-connect is a member still")
	}
}
