package goldmane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/calico/goldmane"
)

// total is what Goldmane would have for a key and a window.
type total struct{ in, out, bytes, connections int64 }

// For random observations, forgetful stores, reads and reconnections, Goldmane gets each observation once, in its window or the next, with its counts.
func TestWindowsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(1, 6).Draw(t, "room")
		store, w := flows.NewStore(room), newWindows(room)
		now := time.Unix(1700000000, 0)
		after := uint64(0)
		want, got := map[string]total{}, map[string]total{}
		windows := map[string]bool{}
		send := func(most int) {
			for f := w.next(); f != nil && most > 0; f = w.next() {
				id := fmt.Sprint(f.Key.SourceName, f.Key.DestPort, f.Key.Reporter, f.StartTime)
				if f.EndTime-f.StartTime != 15 || f.StartTime%15 != 0 || windows[id] {
					t.Fatalf("window %d to %d, again %v", f.StartTime, f.EndTime, windows[id])
				}
				windows[id] = true
				name := fmt.Sprint(f.Key.SourceName, f.Key.DestPort, f.Key.Reporter)
				n := got[name]
				got[name] = total{n.in + f.PacketsIn, n.out + f.PacketsOut, n.bytes + f.BytesIn + f.BytesOut, n.connections + f.NumConnectionsStarted}
				w.sent()
				most--
			}
		}
		read := func() {
			a := &agentflows.Answer{Flows: store.Select(after, nil, 100), Next: store.Number(), Lost: store.Lost(after)}
			w.grow(a)
			after = a.Next
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(1, 20000).Draw(t, "pause")) * time.Millisecond)
			case 1:
				w.closeWindow(now)
			case 2:
				send(rapid.IntRange(0, 3).Draw(t, "most"))
			default:
				read()                         // so that no change is lost
				now = now.Add(time.Nanosecond) // as that of another look at VPP
				f := flows.Flow{
					First: now, Last: now, Node: "node-1", Source: podPeer(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "from"), "10.1.1.2"),
					Destination: podPeer("web", "10.1.1.3"), Protocol: "TCP", Port: uint16(rapid.IntRange(80, 83).Draw(t, "port")), Verdict: flows.Allowed,
					Direction: rapid.SampledFrom([]string{"ingress", "egress"}).Draw(t, "direction"), SeenBy: agentflows.BySessions,
					Counts: flows.Counts{Connections: 1, Packets: uint64(rapid.IntRange(0, 5).Draw(t, "packets")), Bytes: uint64(rapid.IntRange(0, 500).Draw(t, "bytes"))},
				}
				store.Add(f)
				name := fmt.Sprint(f.Source.Name, f.Port, reporterOf(&f))
				n := want[name]
				if n.connections++; f.Direction == "egress" {
					n.out += int64(f.Packets)
				} else {
					n.in += int64(f.Packets)
				}
				n.bytes += int64(f.Bytes)
				want[name] = n
			}
		}
		read()
		w.closeWindow(now.Add(time.Minute))
		send(1000)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(total{})); diff != "" {
			t.Fatal(diff)
		}
		if len(w.known) > 2*room {
			t.Errorf("%d flows known, and the agent keeps %d", len(w.known), room)
		}
	})
}

func observed(at time.Time, change func(*flows.Flow)) *agentflows.Answer {
	f := flows.Flow{
		Number: 1, First: at, Last: at, Node: "node-1", Source: podPeer("a", "10.1.1.2", "app", "a", "x", "1"), Destination: podPeer("web", "10.1.1.3"),
		Protocol: "TCP", Port: 80, Verdict: flows.Allowed, Direction: "egress", SeenBy: agentflows.BySessions, Counts: flows.Counts{Connections: 1},
	}
	if change != nil {
		change(&f)
	}
	return &agentflows.Answer{Flows: []flows.Flow{f}, Next: 1}
}

// A new connection gets the flows of the last five minutes again, and no older ones; what has no room is counted.
func TestReconnectionSendsAgain(t *testing.T) {
	w := newWindows(100)
	begin := time.Unix(1700000010, 0)
	for i := range 30 {
		w.grow(observed(begin.Add(time.Duration(i)*15*time.Second), func(f *flows.Flow) { f.First = f.Last }))
	}
	w.closeWindow(begin.Add(30 * 15 * time.Second))
	for w.next() != nil {
		w.sent()
	}
	w.again()
	var starts []int64
	for f := w.next(); f != nil; f = w.next() {
		starts = append(starts, f.StartTime)
		w.sent()
	}
	if len(starts) != 20 || starts[19] != begin.Unix()+29*15 {
		t.Errorf("%d windows from %v", len(starts), starts)
	}
	if w.lost != 10 { // Goldmane did not read while they became too old
		t.Errorf("%d lost", w.lost)
	}
}

// Labels are those that all pods of a flow have.
func TestLabelsInCommon(t *testing.T) {
	w := newWindows(100)
	at := time.Unix(1700000010, 0)
	w.grow(observed(at, nil))
	w.grow(observed(at, func(f *flows.Flow) {
		f.Source.Address = netip.MustParseAddr("10.1.1.9")
		f.Source.Labels = map[string]string{"app": "a", "x": "2"}
	}))
	w.closeWindow(at.Add(time.Minute))
	if f := w.next(); f == nil || cmp.Diff([]string{"app=a"}, f.SourceLabels) != "" || f.NumConnectionsStarted != 2 {
		t.Errorf("%v", f)
	}
}

// A connection whose source alone NAT changed is in the sessions of lists and in NAT's table: it is one.
func TestConnectionsAreCountedOnce(t *testing.T) {
	at := time.Unix(1700000010, 0)
	for dialled, want := range map[string]int64{"10.1.1.3:80": 1, "10.96.0.1:80": 2} {
		w := newWindows(100)
		w.grow(observed(at, nil))
		w.grow(observed(at, func(f *flows.Flow) {
			f.SeenBy, f.Packets, f.Translation = agentflows.ByNAT, 7, &flows.Translation{Dialled: netip.MustParseAddrPort(dialled)}
		}))
		w.closeWindow(at.Add(time.Minute))
		f := w.next()
		if f == nil || f.NumConnectionsStarted != want || f.PacketsOut != 7 || f.Key.Reporter != goldmane.Reporter_SRC {
			t.Errorf("%s: %v", dialled, f)
		}
	}
}
