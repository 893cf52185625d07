package flows

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/vpp/flowprobe"
)

func recordOf(src, dst string, start, packets uint64) flowprobe.Record {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	return flowprobe.Record{
		Src: s.Addr(), Dst: d.Addr(), SrcPort: s.Port(), DstPort: d.Port(), Protocol: 6, Packets: packets, Bytes: 40 * packets, Start: start,
	}
}

func textOf(seen []observation) (out []string) {
	for _, o := range seen {
		out = append(out, fmt.Sprintf("%s > %s %v %+v", o.source, o.destination, o.twoWay, o.counts))
	}
	return out
}

const client, server = "10.1.1.9:40000", "10.1.1.2:80"

// The end that opened a connection is the source, whichever direction is reported first; later counts are added to it.
func TestProbedDirection(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, c := range []struct {
		name    string
		records []flowprobe.Record
		want    []string
	}{
		{"both", []flowprobe.Record{recordOf(client, server, 5, 3), recordOf(server, client, 6, 2)}, []string{client + " > " + server + " true {Connections:1 Packets:5 Bytes:200}"}},
		{"answer first", []flowprobe.Record{recordOf(server, client, 6, 2), recordOf(client, server, 5, 3)}, []string{client + " > " + server + " true {Connections:1 Packets:5 Bytes:200}"}},
		{"from the lower address", []flowprobe.Record{recordOf(client, server, 6, 3), recordOf(server, client, 5, 2)}, []string{server + " > " + client + " true {Connections:1 Packets:5 Bytes:200}"}},
		{"one way, too early", []flowprobe.Record{recordOf(client, server, 5, 3)}, nil},
	} {
		p := &Probe{}
		p.join(c.records, begin)
		if diff := cmp.Diff(c.want, textOf(p.ripe(begin.Add(time.Second)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		p.join([]flowprobe.Record{recordOf(client, server, 7, 1)}, begin.Add(2*time.Second))
		later := textOf(p.ripe(begin.Add(bothWithin)))
		want := []string{client + " > " + server + " true {Connections:0 Packets:1 Bytes:40}"}
		switch c.name {
		case "from the lower address":
			want = []string{server + " > " + client + " true {Connections:0 Packets:1 Bytes:40}"}
		case "one way, too early":
			want = []string{client + " > " + server + " false {Connections:1 Packets:4 Bytes:160}"}
		}
		if diff := cmp.Diff(want, later); diff != "" {
			t.Errorf("%s, later (-want +got):\n%s", c.name, diff)
		}
		if p.ripe(begin.Add(2*time.Second + keptIdle)); len(p.connections) != 1 {
			t.Errorf("%s: forgotten after %s", c.name, keptIdle)
		}
		if p.ripe(begin.Add(2*time.Second + keptIdle + 1)); len(p.connections) != 0 {
			t.Errorf("%s: idle and kept", c.name)
		}
	}
}

// However records are cut and ordered, each connection is shown once, and each packet is counted once.
func TestProbedCountsOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	p, now := &Probe{}, time.Unix(1000, 0)
	want, got := map[string]flows.Counts{}, map[string]flows.Counts{}
	for range 3000 {
		i := rnd.IntN(200)
		a, b := fmt.Sprintf("10.1.1.%d:1000", i), fmt.Sprintf("10.2.1.%d:80", i)
		if i%2 == 0 {
			a, b = b, a
		}
		n := uint64(1 + rnd.IntN(5))
		records := []flowprobe.Record{recordOf(a, b, 10, n)}
		if rnd.IntN(2) == 0 {
			records = []flowprobe.Record{recordOf(b, a, 11, n)}
		}
		key := a + " > " + b
		c := want[key]
		want[key] = flows.Counts{Connections: 1, Packets: c.Packets + n, Bytes: c.Bytes + 40*n}
		now = now.Add(time.Duration(rnd.IntN(3)) * time.Millisecond)
		p.join(records, now)
		if rnd.IntN(5) == 0 {
			addShown(got, p.ripe(now))
		}
	}
	addShown(got, p.ripe(now.Add(bothWithin)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func addShown(got map[string]flows.Counts, seen []observation) {
	for _, o := range seen {
		key := o.source.String() + " > " + o.destination.String()
		c := got[key]
		got[key] = flows.Counts{Connections: c.Connections + o.counts.Connections, Packets: c.Packets + o.counts.Packets, Bytes: c.Bytes + o.counts.Bytes}
	}
}

// Connections beyond the bound are counted as lost.
func TestProbedIsBounded(t *testing.T) {
	p, now := &Probe{}, time.Unix(1000, 0)
	records := make([]flowprobe.Record, 0, mostProbed+5)
	for i := range mostProbed + 5 {
		records = append(records, flowprobe.Record{Src: addrAt(i), Dst: addrAt(1 << 22), Protocol: 6, Packets: 1, Start: 1})
	}
	if lost := p.join(records, now); lost != 5 || len(p.connections) != mostProbed {
		t.Errorf("%d lost, %d known", lost, len(p.connections))
	}
}

// BenchmarkProbed is the work of a period of 1 s with 1,000 new connections with both directions, beside 60,000 known ones.
func BenchmarkProbed(b *testing.B) {
	b.ReportAllocs()
	w := New(Config{Now: func() time.Time { return time.Unix(1000, 0) }})
	p, now := &Probe{}, time.Unix(1000, 0)
	records := func(first int) (out []flowprobe.Record) {
		for i := range 1000 {
			src, dst := addrAt(first+i), addrAt(1<<23)
			out = append(out, flowprobe.Record{Src: src, Dst: dst, SrcPort: 1, DstPort: 2, Protocol: 6, Packets: 1, Start: 1}, flowprobe.Record{Src: dst, Dst: src, SrcPort: 2, DstPort: 1, Protocol: 6, Packets: 1, Start: 2})
		}
		return out
	}
	n := 0
	for b.Loop() {
		p.join(records(n%4_000_000), now)
		found, _ := w.explain(&Loop{}, p.ripe(now))
		for _, f := range found {
			w.store.Add(f)
		}
		n, now = n+1000, now.Add(time.Second)
	}
}
