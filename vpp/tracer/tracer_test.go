package tracer

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// answering is a VPP with a command line: the filter's table, and the packets that it traces.
type answering struct {
	table, packets string
	refuses        string // the command that fails
	sent           []string
}

const ours, foreign = "  nbuckets 16, skip 1 match 2 flag 0 offset 0\n", "  nbuckets 8, skip 1 match 2 flag 0 offset 0\n"

// changing is held by who reads or changes an answering: the trace, or the test meanwhile.
var changing sync.Mutex

func (a *answering) do(ctx context.Context, calls ...vpp.Call) (out []vpp.Reply) {
	changing.Lock()
	defer changing.Unlock()
	for _, c := range calls {
		line := c.Msg.(*vlib.CliInband).Cmd
		a.sent = append(a.sent, line)
		switch {
		case ctx.Err() != nil:
			out = append(out, vpp.Reply{Err: ctx.Err()})
		case a.refuses != "" && strings.HasPrefix(line, a.refuses):
			out = append(out, vpp.Reply{Msg: &vlib.CliInbandReply{Reply: "no"}, Err: &vpp.Retval{Message: "cli_inband", Code: -1}})
		default:
			out = append(out, vpp.Reply{Msg: &vlib.CliInbandReply{Reply: a.run(line)}})
		}
	}
	return out
}

func (a *answering) run(line string) string {
	switch {
	case line == showFilter && a.table == "":
		return "packet tracer:                 first table none\n"
	case line == showFilter:
		return "packet tracer:                 first table 7\n"
	case line == "show classify tables index 7":
		return a.table
	case line == clearFilter:
		a.table = ""
	case strings.HasPrefix(line, "classify filter trace "):
		a.table = ours
	case strings.HasPrefix(line, "show trace"):
		return a.packets
	case line == clearTrace:
		a.packets = ""
	}
	return ""
}

var toService = Filter{netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.96.0.10"), 6, 80}

// armed reports whether the tracer is on.
func (a *answering) armed() bool {
	changing.Lock()
	defer changing.Unlock()
	return a.table == ours
}

// receive lets the tracer have packets.
func (a *answering) receive(packets string) {
	changing.Lock()
	defer changing.Unlock()
	a.packets = packets
}

// commands are those that were sent.
func (a *answering) commands() []string {
	changing.Lock()
	defer changing.Unlock()
	return slices.Clone(a.sent)
}

// traced begins a trace, and returns when VPP traces.
func (a *answering) traced(ctx context.Context, t *Tracer, most time.Duration, enough func([]Packet) bool) (result func() ([]Packet, error)) {
	var got []Packet
	var err error
	done := make(chan struct{})
	go func() { defer close(done); got, err = t.Trace(ctx, a.do, "pg-input", toService, most, begins, enough) }()
	synctest.Wait()
	return func() ([]Packet, error) { <-done; return got, err }
}

func golden(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/2510.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func some([]Packet) bool { return true }

func begins() error { return nil }

// The begin is known when VPP traces, and never if it does not. If it fails, the trace ends.
func TestTraceBegins(t *testing.T) {
	refused := errors.New("no packet is sent")
	for _, refuses := range []string{"", "trace add"} {
		a, armed := &answering{refuses: refuses}, 0
		_, err := (&Tracer{}).Trace(t.Context(), a.do, "pg-input", toService, time.Second, func() error {
			if armed++; !slices.Contains(a.commands(), "trace add pg-input 32 filter") || !a.armed() {
				t.Errorf("VPP does not trace yet: %q", a.commands())
			}
			return refused
		}, some)
		if want := map[string]int{"": 1, "trace add": 0}[refuses]; armed != want || errors.Is(err, refused) != (want == 1) || a.armed() {
			t.Errorf("%q is refused: %d begins, %v, tracer on %t", refuses, armed, err, a.armed())
		}
	}
}

// A trace ends with the packets, after its time, or with its context; the tracer is off then.
func TestTraceEnds(t *testing.T) {
	text := golden(t)
	for _, c := range []struct {
		name   string
		end    func(*answering, context.CancelFunc)
		n      int
		failed error
	}{
		{"a packet came", func(a *answering, _ context.CancelFunc) { a.receive(text) }, 15, nil},
		{"none came", func(*answering, context.CancelFunc) { time.Sleep(10 * time.Second) }, 0, nil},
		{"the client has gone", func(_ *answering, cancel context.CancelFunc) { cancel() }, 0, context.Canceled},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &answering{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := a.traced(ctx, &Tracer{}, 10*time.Second, some)
			if !a.armed() || !slices.Contains(a.commands(), "trace add pg-input 32 filter") {
				t.Errorf("%s: VPP does not trace: %q", c.name, a.sent)
			}
			c.end(a, cancel)
			got, err := result()
			if len(got) != c.n || !errors.Is(err, c.failed) || a.armed() || a.packets != "" {
				t.Errorf("%s: %d packets, %v, tracer on %t", c.name, len(got), err, a.armed())
			}
			if a.sent[len(a.sent)-2] != clearTrace || a.sent[len(a.sent)-1] != clearFilter {
				t.Errorf("%s: the last commands are %q", c.name, a.sent)
			}
		})
	}
}

// A full buffer whose packets are not enough is emptied, so that later ones are traced.
func TestTraceEmptiesFullBuffer(t *testing.T) {
	text := golden(t)
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		a := &answering{}
		result := a.traced(t.Context(), &Tracer{}, 10*time.Second, func(p []Packet) bool { calls.Add(1); return len(p) == 1 })
		before := len(a.commands())
		a.receive(text + text + text)
		time.Sleep(lookEvery)
		synctest.Wait()
		if calls.Load() != 1 || !slices.Contains(a.commands()[before:], clearTrace) || !a.armed() {
			t.Errorf("after %d looks the commands are %q, armed %t", calls.Load(), a.commands(), a.armed())
		}
		first, _, _ := strings.Cut(text, "\nPacket 2\n")
		a.receive(first)
		if got, err := result(); len(got) != 1 || err != nil {
			t.Errorf("%d packets, %v", len(got), err)
		}
	})
}

// A trace of another program stays: its filter, and its packets. One of an ended agent is ended.
func TestTraceBesideOthers(t *testing.T) {
	for _, c := range []struct {
		name string
		vpp  answering
		want error
	}{
		{"a foreign filter", answering{table: foreign}, ErrForeign},
		{"foreign packets", answering{packets: golden(t)}, ErrForeign},
		{"no tracer", answering{refuses: showFilter}, ErrAbsent},
		{"an ended agent", answering{table: ours, packets: golden(t)}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := c.vpp
			_, err := (&Tracer{}).Trace(t.Context(), a.do, "pg-input", toService, time.Second, begins, some)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
			if c.want != nil && (a.table != c.vpp.table || a.packets != c.vpp.packets) {
				t.Errorf("%s: changed by %q", c.name, a.sent)
			}
			if c.want == nil && (a.armed() || a.packets != "") {
				t.Errorf("%s: it traces still", c.name)
			}
		})
	}
}

// One trace runs at a time, a command that VPP refuses ends it, and its time is bounded.
func TestTraceRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tracer := &answering{}, &Tracer{}
		ctx, cancel := context.WithCancel(t.Context())
		result := a.traced(ctx, tracer, time.Minute, some)
		if _, err := tracer.Trace(t.Context(), a.do, "pg-input", toService, time.Second, begins, some); !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		cancel()
		_, _ = result()
	})
	a := &answering{refuses: "trace add"}
	if _, err := (&Tracer{}).Trace(t.Context(), a.do, "pg-input", toService, time.Second, begins, some); err == nil || a.armed() {
		t.Errorf("%v, armed %t", err, a.armed())
	}
	if _, err := (&Tracer{}).Trace(t.Context(), a.do, "pg-input", toService, 2*MostTime, begins, some); err == nil || !strings.Contains(err.Error(), "at most 1m0s") {
		t.Error(err)
	}
}

func TestFilterCommand(t *testing.T) {
	for want, f := range map[string]Filter{
		"classify filter trace buckets 16 mask l3 ip4 src dst proto l4 dst_port match l3 ip4 src 10.1.1.2 dst 10.96.0.10 proto 6 l4 dst_port 80": toService,
		"classify filter trace buckets 16 mask l3 ip6 src dst proto match l3 ip6 src fd00::2 dst fd00:1::2 proto 58":                             {netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00:1::2"), 58, 0},
	} {
		if got := f.command(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Interfaces have VPP's names, and the node by which their packets come.
func TestInputNode(t *testing.T) {
	do := func(context.Context, ...vpp.Call) []vpp.Reply {
		mac := [6]uint8{2, 1}
		return []vpp.Reply{{Details: []api.Message{
			&interfaces.SwInterfaceDetails{SwIfIndex: 1, InterfaceName: "tap0\x00", InterfaceDevType: "virtio\x00", Tag: "prod/web\x00", L2Address: mac},
			&interfaces.SwInterfaceDetails{SwIfIndex: 2, InterfaceName: "memif1/0", InterfaceDevType: "memif"},
			&interfaces.SwInterfaceDetails{SwIfIndex: 3, InterfaceName: "loop0", InterfaceDevType: "Loopback", L2Address: mac},
		}}}
	}
	got, err := ReadInterfaces(t.Context(), do)
	if err != nil || got[1].Name != "tap0" || got[1].Tag != "prod/web" {
		t.Fatalf("%+v, %v", got[1], err)
	}
	for index, want := range map[uint32]string{1: "virtio-input", 2: "no Ethernet header", 3: `kind "Loopback"`} {
		node, err := got[index].InputNode()
		if err == nil && node != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %q, %v", index, node, err)
		}
	}
}
