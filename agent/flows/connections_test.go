package flows

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// passing is NAT44's table of a VPP: connections that it lets pass, with the inside first.
type passing [][2]netip.AddrPort

func (p passing) do(_ context.Context, calls ...vpp.Call) (out []vpp.Reply) {
	for _, c := range calls {
		r := vpp.Reply{}
		switch m := c.Msg.(type) {
		case *nat44_ed.Nat44UserDump:
			users := map[netip.Addr]uint32{}
			for _, e := range p {
				users[e[0].Addr()]++
			}
			for a, n := range users {
				r.Details = append(r.Details, &nat44_ed.Nat44UserDetails{IPAddress: a.As4(), Nsessions: n})
			}
		case *nat44_ed.Nat44UserSessionV3Dump:
			for _, e := range p {
				if in := e[0].Addr().As4(); in == m.IPAddress {
					r.Details = append(r.Details, api.Message(&nat44_ed.Nat44UserSessionV3Details{
						Protocol: 6, InsideIPAddress: in, InsidePort: e[0].Port(), OutsideIPAddress: in, OutsidePort: e[0].Port(),
						ExtHostAddress: e[1].Addr().As4(), ExtHostPort: e[1].Port(), TotalPkts: 3,
					}))
				}
			}
		}
		out = append(out, r)
	}
	return out
}

// readTable reads NAT44's table.
func readTable(t *testing.T, w *Watcher, v passing) ([]observation, error) {
	t.Helper()
	read := w.dueTables()
	read.due = [3]bool{2: true}
	read.readDue(t.Context(), Loop{Do: v.do}, w)
	seen := w.noteTranslated(read)
	return seen, read.err[2]
}

func endsAt(inside, outside string) [2]netip.AddrPort {
	return [2]netip.AddrPort{netip.MustParseAddrPort(inside), netip.MustParseAddrPort(outside)}
}

// While sessions are not listed, a connection that NAT44 lets pass is counted once, from the end with a client's port: NAT44 may have seen the answer first.
// A session that is known says it better. While they are listed, a connection without a session is not shown.
func TestWhoDialled(t *testing.T) {
	v := passing{
		endsAt("10.1.1.2:80", "10.1.2.9:40000"), // dialled by the other node's pod
		endsAt("10.1.1.2:40001", "10.1.2.9:80"), // dialled by this node's pod: NAT44 saw the answer
		endsAt("10.1.1.2:50000", "10.1.2.9:40002"),
		endsAt("10.1.1.2:7", "10.1.2.9:7"),
		endsAt("10.1.1.2:8080", "10.1.2.9:1024"),
	}
	w := New(Config{Node: "node-1", Folder: t.TempDir(), Name: "test", Logger: slog.New(slog.DiscardHandler)})
	known, _ := endsOf(v[2][0], v[2][1], 6)
	w.known.opened = map[ends]netip.AddrPort{known: v[2][1]}
	look := func() (out []string) {
		t.Helper()
		seen, err := readTable(t, w, v)
		if err != nil {
			t.Fatal(err)
		}
		for i := range seen {
			if seen[i].input {
				out = append(out, fmt.Sprintf("%s -> %s: %s", seen[i].source, seen[i].destination, seen[i].counts.Text()))
			}
		}
		slices.Sort(out)
		return out
	}
	w.known.listed = true
	if got, want := look(), []string{"10.1.2.9:40002 -> 10.1.1.2:50000: 3 packets"}; !slices.Equal(got, want) {
		t.Errorf("with all sessions: %q, want %q", got, want)
	}
	w.known.listed = false
	want := []string{"10.1.1.2:40001 -> 10.1.2.9:80: 1 connections, 3 packets", "10.1.2.9:1024 -> 10.1.1.2:8080: 1 connections, 3 packets", "10.1.2.9:40000 -> 10.1.1.2:80: 1 connections, 3 packets", "10.1.2.9:7 -> 10.1.1.2:7: 1 connections, 3 packets"}
	if got := look(); !slices.Equal(got, want) {
		t.Errorf("with a part of the sessions: %q, want %q", got, want)
	}
	if got := look(); len(got) > 0 {
		t.Errorf("without news: %q", got)
	}
}

// A connection of an address that a reading left out stays known: it is no new one when the address has its turn again.
func TestTurnsCountOnce(t *testing.T) {
	var v passing
	for n := range 30 {
		v = append(v, endsAt(fmt.Sprintf("10.1.1.%d:80", 1+n%3), fmt.Sprintf("10.2.0.1:%d", 40000+n)))
	}
	w := New(Config{Node: "node-1", Folder: t.TempDir(), Name: "test", Logger: slog.New(slog.DiscardHandler), Translated: sessions.Bounds{All: 20, One: 20}})
	sum := flows.Counts{}
	for range 12 {
		seen, err := readTable(t, w, v)
		if err == nil || w.sources[2].Present != 30 || w.sources[2].Read != 20 {
			t.Fatalf("%v, %+v", err, w.sources[2])
		}
		for i := range seen {
			if seen[i].input {
				sum.Connections, sum.Packets = sum.Connections+seen[i].counts.Connections, sum.Packets+seen[i].counts.Packets
			}
		}
	}
	if sum.Connections != 30 || sum.Packets != 90 {
		t.Errorf("%s, want 30 connections with 90 packets", sum.Text())
	}
}
