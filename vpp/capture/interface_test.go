package capture

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"

	"github.com/contiv-agent/contiv-agent/vpp"
)

var few = Limits{Packets: 1000, Bytes: 100, Time: time.Minute}

// shared is a VPP, and both captures of an agent.
type shared struct {
	*answers
	drops *Drops
	one   *Interface
	stop  chan struct{}
}

func share(t *testing.T) *shared {
	a := &answers{t: t, dir: t.TempDir(), count: "0"}
	d := NewDrops(a.dir, "x", 1000)
	return &shared{a, d, NewInterface(a.dir, "x", d), make(chan struct{})}
}

// after calls f when VPP has captured the interface for n questions.
func (s *shared) after(n int, f func()) {
	s.look = func() {
		if s.on == s.one.file {
			if n--; n == 0 {
				s.look = nil
				f()
			}
		}
	}
}

func (s *shared) left() (names []string) {
	files, _ := os.ReadDir(s.dir)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// A capture of an interface takes the place of the capture of dropped packets, whose packets are kept, and gives it back.
func TestInterfaceTakesThePlaceOfDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		if _, err := s.drops.Read(t.Context(), s.do); err != nil {
			t.Fatal(err)
		}
		s.count, s.sent = "1", nil
		s.after(2, func() {
			c, err := s.drops.Read(t.Context(), s.do)
			if !errors.Is(err, ErrLent) || len(c.Packets) != 1 {
				t.Errorf("dropped packets meanwhile: %+v, %v", c, err)
			}
			if _, err := s.one.Capture(t.Context(), s.do, 7, few, s.stop); !errors.Is(err, ErrBusy) {
				t.Errorf("a second capture: %v", err)
			}
			s.count = "1000"
		})
		file, err := s.one.Capture(t.Context(), s.do, 7, few, s.stop)
		if n, errCount := Count(file); n != 1 || err != nil || errCount != nil {
			t.Errorf("%d packets, %v, %v", n, err, errCount)
		}
		s.count = "0"
		c, err := s.drops.Read(t.Context(), s.do)
		if len(c.Packets) != 0 || err != nil {
			t.Errorf("dropped packets afterwards: %+v, %v", c, err)
		}
		want := []string{
			status, "off", status, "on contiv-capture-x.pcap at 7, 1000 x 100", status, status, status, "off", status, "on contiv-flows-x-0.pcap",
		}
		if diff := cmp.Diff(want, s.sent); diff != "" || len(s.left()) > 0 {
			t.Errorf("(-want +got):\n%s\nleft: %q", diff, s.left())
		}
	})
}

// Dropped packets that were read when the capture was lent are not lost if no read was in between.
func TestInterfaceKeepsDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		if _, err := s.drops.Read(t.Context(), s.do); err != nil {
			t.Fatal(err)
		}
		s.count = "1000"
		if _, err := s.one.Capture(t.Context(), s.do, 7, few, s.stop); err != nil {
			t.Fatal(err)
		}
		for i, want := range []Captured{{Packets: make([]Packet, 1), Full: true}, {}} {
			s.count = "0"
			if c, err := s.drops.Read(t.Context(), s.do); err != nil || len(c.Packets) != len(want.Packets) || c.Full != want.Full {
				t.Errorf("read %d: %+v, %v", i, c, err)
			}
		}
	})
}

// A capture ends when it is stopped, when its time is over, and when nobody waits for it; then nothing is left in VPP and its folder.
func TestInterfaceEnds(t *testing.T) {
	for _, c := range []struct {
		name, count string
		end         func(s *shared, cancel func())
		packets     int
		err         error
		took        time.Duration
	}{
		{"stopped", "3", func(s *shared, _ func()) { close(s.stop) }, 1, nil, 250 * time.Millisecond},
		{"time", "3", func(*shared, func()) {}, 1, nil, time.Minute},
		{"time without packets", "0", func(*shared, func()) {}, 0, nil, time.Minute},
		{"abandoned", "3", func(_ *shared, cancel func()) { cancel() }, 0, context.Canceled, 250 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := share(t)
				s.count = c.count
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.after(1, func() { c.end(s, cancel) })
				begin := time.Now()
				file, err := s.one.Capture(ctx, s.do, 7, few, s.stop)
				if !errors.Is(err, c.err) || time.Since(begin) != c.took {
					t.Errorf("%v after %s", err, time.Since(begin))
				}
				if n, errFile := Count(file); n != c.packets || (errFile != nil) != (c.err != nil) {
					t.Errorf("%d packets, %v", n, errFile)
				}
				if s.on != "" || !slices.Contains(s.sent, "off") || len(s.left()) > 0 || s.drops.lent {
					t.Errorf("%q runs after %q, %q is left, lent: %v", s.on, s.sent, s.left(), s.drops.lent)
				}
			})
		})
	}
}

// A capture of another program is never ended: neither one that runs, nor one that begins when this one was ended by hand.
func TestInterfaceLeavesForeignCaptures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		s.on = "mine.pcap"
		if _, err := s.one.Capture(t.Context(), s.do, 7, few, s.stop); !errors.Is(err, ErrForeign) || slices.Contains(s.sent, "off") || s.drops.lent {
			t.Errorf("%v, after %q", err, s.sent)
		}
		s.on, s.count = "", "3"
		s.after(1, func() { s.on = "mine.pcap" })
		_, err := s.one.Capture(t.Context(), s.do, 7, few, s.stop)
		if err == nil || !strings.Contains(err.Error(), "another program") || slices.Contains(s.sent, "off") || s.on != "mine.pcap" {
			t.Errorf("%v, after %q", err, s.sent)
		}
		s.on = ""
		s.after(1, func() { s.do(t.Context(), vpp.Call{Msg: &interfaces.PcapTraceOff{}}) })
		if file, err := s.one.Capture(t.Context(), s.do, 7, few, s.stop); err != nil || len(file) != len(fileOf(t)) {
			t.Errorf("ended by hand: %d bytes, %v", len(file), err)
		}
	})
}

// A capture that an earlier agent left is ended by the next capture, and by the capture of dropped packets.
func TestInterfaceOfAnEarlierAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		s.on, s.count = s.one.file, "3"
		close(s.stop)
		if _, err := s.one.Capture(t.Context(), s.do, 7, few, s.stop); err != nil {
			t.Error(err)
		}
		s.on, s.sent = s.one.file, nil
		if c, err := s.drops.Read(t.Context(), s.do); err != nil || len(c.Packets) > 0 {
			t.Errorf("%+v, %v", c, err)
		}
		if diff := cmp.Diff([]string{status, "off", "on contiv-flows-x-0.pcap"}, s.sent); diff != "" || len(s.left()) > 0 {
			t.Errorf("%s, %q is left", diff, s.left())
		}
	})
}

func TestInterfaceWithoutVPPsFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		s.count = "1000"
		s.one = NewInterface(filepath.Join(s.dir, "other"), "x", nil)
		if _, err := s.one.Capture(t.Context(), s.do, 7, few, s.stop); err == nil || !strings.Contains(err.Error(), "must see VPP's /tmp") {
			t.Error(err)
		}
	})
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		l    Limits
		want string
	}{
		{Limits{1, 32, time.Second}, ""},
		{Limits{100_000, 256, 10 * time.Minute}, ""},
		{Limits{0, 32, time.Second}, "packets"},
		{Limits{100_001, 32, time.Second}, "packets"},
		{Limits{1, 31, time.Second}, "bytes of a packet"},
		{Limits{1, 9001, time.Second}, "bytes of a packet"},
		{Limits{1, 32, 0}, "more than 0"},
		{Limits{1, 32, time.Hour}, "at most"},
		{Limits{100_000, 9000, time.Second}, "memory"},
	} {
		if err := c.l.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.l, err)
		}
	}
	s := share(t)
	if _, err := s.one.Capture(t.Context(), s.do, 0, few, nil); err == nil || len(s.sent) > 0 {
		t.Errorf("all interfaces: %v", err)
	}
	if _, err := s.one.Capture(t.Context(), s.do, 7, Limits{}, nil); err == nil || len(s.sent) > 0 {
		t.Errorf("no limits: %v", err)
	}
}

func TestInterfaceOf(t *testing.T) {
	at := func(indices ...uint32) vpp.Reply {
		m := &ip.IPRouteLookupReply{}
		for _, i := range indices {
			m.Route.Paths = append(m.Route.Paths, fib_types.FibPath{SwIfIndex: i})
		}
		return vpp.Reply{Msg: m}
	}
	for _, c := range []struct {
		reply vpp.Reply
		want  uint32
		err   error
	}{
		{at(7), 7, nil},
		{at(), 0, ErrNoRoute},
		{at(7, 8), 0, ErrNoRoute},
		{at(0), 0, ErrNoRoute},
		{at(^uint32(0)), 0, ErrNoRoute},
		{vpp.Reply{Err: &vpp.Retval{Code: int32(api.NO_SUCH_ENTRY)}}, 0, ErrNoRoute},
		{vpp.Reply{Err: context.Canceled}, 0, context.Canceled},
	} {
		got, err := InterfaceOf(t.Context(), func(_ context.Context, calls ...vpp.Call) []vpp.Reply {
			if m := calls[0].Msg.(*ip.IPRouteLookup); m.Exact != 1 || m.Prefix.String() != "10.1.1.2/32" {
				t.Errorf("asked for %+v", m)
			}
			return []vpp.Reply{c.reply}
		}, netip.MustParseAddr("10.1.1.2"))
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v: %d, %v", c.reply, got, err)
		}
	}
}
