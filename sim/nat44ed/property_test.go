package nat44ed

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var (
	pods = []string{"10.1.1.2", "10.1.1.3", "10.1.1.4"}
	vips = []string{"10.96.0.1", "10.96.0.2", "192.168.16.1"}
)

// random is a test's record of its configuration: the weight of each backend by VIP.
type random struct {
	l     *lab
	vips  map[netip.AddrPort]map[Local]bool
	spoke map[netip.AddrPort]netip.AddrPort // the VIP each port of a client was used for
}

func drawBackend(t *rapid.T) Local {
	return Local{Addr: addr(rapid.SampledFrom(pods).Draw(t, "backend")), Port: rapid.SampledFrom([]uint16{8080, 8081}).Draw(t, "port"), Probability: 1}
}

func drawVIP(t *rapid.T) netip.AddrPort {
	return netip.AddrPortFrom(addr(rapid.SampledFrom(vips).Draw(t, "vip")), rapid.SampledFrom([]uint16{80, 443}).Draw(t, "vport"))
}

// change does one valid step of configuration, of those that a guarded agent makes.
func (r *random) change(t *rapid.T) {
	v, b := drawVIP(t), drawBackend(t)
	locals := r.vips[v]
	var rv int32
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0, 1:
		if locals != nil {
			rv = r.l.AddDelLBStaticMapping(false, LBMapping{External: v.Addr(), Port: v.Port(), Proto: protoTCP, Flags: agents})
			delete(r.vips, v)
			break
		}
		m := LBMapping{External: v.Addr(), Port: v.Port(), Proto: protoTCP, Flags: agents, Locals: []Local{pad(1), pad(2), b}}
		if rapid.Bool().Draw(t, "affinity") {
			m.Affinity = 30
		}
		rv = r.l.AddDelLBStaticMapping(true, m)
		r.vips[v] = map[Local]bool{b: true}
	case 2, 3:
		if locals == nil || locals[b] {
			return
		}
		rv = r.l.LBStaticMappingAddDelLocal(true, v.Addr(), v.Port(), protoTCP, b)
		locals[b] = true
	case 4:
		if len(locals) < 2 || !locals[b] {
			return
		}
		rv = r.l.LBStaticMappingAddDelLocal(false, v.Addr(), v.Port(), protoTCP, b)
		delete(locals, b)
	}
	if rv != OK {
		t.Fatalf("valid change refused: %d", rv)
	}
}

func podOf(a netip.Addr) uint32 {
	for i, p := range pods {
		if addr(p) == a {
			return podA + uint32(i)
		}
	}
	return uplink
}

// connect opens a connection to the VIP and answers it. The client must see the VIP and its port, and the packet must have reached a
// present backend of the mapping, or an earlier one if clients have affinity.
func (r *random) connect(t *rapid.T, v netip.AddrPort, ever map[Local]bool) {
	client := rapid.SampledFrom([]string{"10.1.1.2", "10.1.1.3", "10.1.1.4", "8.8.8.8"}).Draw(t, "client")
	port := rapid.Uint16Range(1, 65535).Draw(t, "cport")
	from := netip.AddrPortFrom(addr(client), port)
	p := packet.NewTCP(from, v)
	sent := p.String()
	if r.vips[v] == nil {
		return // TestUnservedAttemptsStick explains why to skip this
	}
	if before, used := r.spoke[from]; used && before != v {
		return // TestOnePortForTwoVIPs
	}
	r.spoke[from] = v
	got := r.l.send(podOf(from.Addr()), sent)
	q, err := packet.Parse(got)
	if err != nil {
		t.Fatalf("%s: %s", sent, got)
	}
	if !ever[Local{Addr: q.Dst, Port: q.DstPort, Probability: 1}] {
		t.Fatalf("%s went to %s, never a backend", sent, got)
	}
	if q.Src != from.Addr() && q.Src != addr("10.2.1.254") {
		t.Fatalf("%s has source %s", sent, got)
	}
	if (q.Src != from.Addr()) != (q.Dst == from.Addr()) && q.Dst != from.Addr() {
		t.Fatalf("%s: source translated for another pod: %s", sent, got)
	}
	back := r.l.send(podOf(q.Dst), q.Reply().String())
	if want := p.Reply(); back != want.String() {
		t.Fatalf("%s became %s; the client gets %s, want %s", sent, got, back, want)
	}
	if again := r.l.send(podOf(from.Addr()), strings.Replace(sent, "[S]", "[A]", 1)); again != strings.Replace(got, "[S]", "[A]", 1) {
		t.Fatalf("%s first became %s, then %s", sent, got, again)
	}
}

func TestAnswersRestoreTheClientsView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := random{l: service(&testing.T{}), vips: map[netip.AddrPort]map[Local]bool{}, spoke: map[netip.AddrPort]netip.AddrPort{}}
		ever := map[netip.AddrPort]map[Local]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			r.change(t)
			for v, locals := range r.vips {
				if ever[v] == nil {
					ever[v] = map[Local]bool{}
				}
				for b := range locals {
					ever[v][b] = true
				}
			}
			v := drawVIP(t)
			r.connect(t, v, ever[v])
			r.l.advance(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
		}
	})
}

// After any changes of sessions since a snapshot, restoring it returns the same table, affinity and random numbers; so the same
// packets have the same fate again.
func TestRestoreForgetsWhatPacketsDid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := random{l: service(&testing.T{}), vips: map[netip.AddrPort]map[Local]bool{}, spoke: map[netip.AddrPort]netip.AddrPort{}}
		for range 8 {
			r.change(t)
		}
		traffic := func(lines []string) []string {
			var fates []string
			for i, line := range lines {
				p, _ := packet.Parse(line)
				fates = append(fates, r.l.send(podOf(p.Src), line))
				r.l.advance(time.Duration(i*7%50) * time.Second)
			}
			return append(fates, r.l.lines()...)
		}
		line := rapid.Custom(func(t *rapid.T) string {
			p := packet.Packet{
				Src: addr(rapid.SampledFrom([]string{"10.1.1.2", "10.1.1.3", "8.8.8.8"}).Draw(t, "src")), SrcPort: rapid.Uint16Range(1, 5).Draw(t, "sport"),
				Dst: addr(rapid.SampledFrom(append([]string{"1.2.3.4", "10.1.1.3"}, vips...)).Draw(t, "dst")), DstPort: 80,
				Proto: rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP}).Draw(t, "proto"),
			}
			if p.Proto == model.TCP {
				p.TCPFlags = rapid.SampledFrom([]uint8{packet.SYN, packet.ACK, packet.FIN | packet.ACK, packet.RST}).Draw(t, "flags")
			}
			return p.String()
		})
		before := rapid.SliceOfN(line, 0, 20).Draw(t, "before")
		after := rapid.SliceOfN(line, 1, 20).Draw(t, "after")
		nested := rapid.SliceOfN(line, 0, 10).Draw(t, "nested")
		traffic(before)
		table, clock := r.l.lines(), r.l.clock
		outer := r.l.Snapshot()
		first := traffic(after)
		inner := r.l.Snapshot()
		traffic(nested)
		if rapid.Bool().Draw(t, "purge") {
			for _, b := range []string{"10.1.1.2", "10.1.1.3"} {
				r.l.purgeLB(addrNum(addr(b)), 8080)
			}
		}
		r.l.Restore(inner)
		r.l.Restore(outer)
		r.l.clock = clock
		if diff := cmp.Diff(table, r.l.lines()); diff != "" {
			t.Fatalf("restored table differs:\n%s", diff)
		}
		if diff := cmp.Diff(first, traffic(after)); diff != "" {
			t.Fatalf("the same packets after restore:\n%s", diff)
		}
	})
}

func TestReleaseKeepsNoJournal(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	m := l.Snapshot()
	l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
	if len(l.journal) == 0 {
		t.Error("no journal after a snapshot")
	}
	l.Restore(m)
	l.Release()
	l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
	if len(l.journal) != 0 {
		t.Error("a journal after release")
	}
	l.Restore(m) // the journal begins at the first mark
	defer func() {
		if recover() == nil {
			t.Error("restoring a mark that is gone does not panic")
		}
	}()
	l.Restore(Mark{at: 1})
}

// Restore undoes the plugin's disable for sessions.
func TestRestoreAcrossDisable(t *testing.T) {
	l := service(t)
	l.lb(pad(1), backB)
	l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
	want := l.lines()
	m := l.Snapshot()
	l.ok(l.PluginEnableDisable(false, PluginConfig{}))
	l.Restore(m)
	if diff := cmp.Diff(want, l.lines()); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkFastPath(b *testing.B) {
	for _, c := range []struct {
		name, open, line string
		swIf             uint32
	}{
		{"request", "", "tcp 10.1.1.2:7 -> 10.96.0.10:80 [A]", podA},
		{"answer", "", "tcp 10.1.1.3:8080 -> 10.1.1.2:7 [A]", podB},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := service(b)
			l.lb(pad(1), backB)
			l.in(podA, "tcp 10.1.1.2:7 -> 10.96.0.10:80 [S]")
			p, err := packet.Parse(c.line)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				q := p
				if r := l.Input(&q, c.swIf, Meta{}); r.Action != Next || q == p {
					b.Fatal(r)
				}
			}
		})
	}
}

// The cost of exploring every choice: a snapshot, a new flow, its reply, and a restore.
func BenchmarkSnapshotConnectRestore(b *testing.B) {
	l := service(b)
	l.lb(pad(1), backA, backB, backC)
	for port := 1; port <= 10000; port++ {
		l.in(uplink, fmt.Sprintf("udp 8.8.8.8:%d -> 10.1.1.2:53", port))
	}
	p, _ := packet.Parse("tcp 10.1.1.4:7 -> 10.96.0.10:80 [S]")
	b.ReportAllocs()
	for b.Loop() {
		m := l.Snapshot()
		q := p
		if r := l.Input(&q, podC, Meta{}); r.Action != Next {
			b.Fatal(r)
		}
		back := q.Reply()
		if r := l.Input(&back, podB, Meta{}); r.Action != Next {
			b.Fatal(r)
		}
		l.Restore(m)
	}
}
