package flowprobe

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	probe "go.fd.io/govpp/binapi/flowprobe"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/ipfix_export"

	"github.com/contiv-agent/contiv-agent/sim/packet"
	reader "github.com/contiv-agent/contiv-agent/vpp/flowprobe"
)

var begin = time.Unix(1_700_000_000, 0)

// counting returns a probe that counts what leaves by interface 1, with the parameters of an agent.
func counting(t *testing.T, which probe.FlowprobeWhich) *Probe {
	t.Helper()
	p := New()
	address := func(s string) ip_types.Address {
		return ip_types.Address{Un: ip_types.AddressUnionIP4(netip.MustParseAddr(s).As4())}
	}
	for what, retval := range map[string]int32{
		"parameters": p.SetParams(&probe.FlowprobeSetParams{RecordFlags: probe.FLOWPROBE_RECORD_FLAG_L3 | probe.FLOWPROBE_RECORD_FLAG_L4, ActiveTimer: 5, PassiveTimer: 6}),
		"exporter": p.SetExporter(&ipfix_export.SetIpfixExporter{
			CollectorAddress: address("10.9.9.9"), CollectorPort: 4740, SrcAddress: address("10.9.9.1"), VrfID: anyTable, PathMtu: 1400, TemplateInterval: 2,
		}, true),
	} {
		if retval != 0 {
			t.Fatalf("%s: %d", what, retval)
		}
	}
	if retval := p.Set(&probe.FlowprobeInterfaceAddDel{IsAdd: true, Which: which, Direction: probe.FLOWPROBE_DIRECTION_TX, SwIfIndex: 1}); retval != 0 {
		t.Fatal(retval)
	}
	return p
}

func tcp(src, dst string) packet.Packet {
	return packet.NewTCP(netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst))
}

// TestEachPacketIsInOneRecord: at random times packets of many connections of both families come and go; the agent's reader gets each of those that leave by the interface once,
// with its bytes, and misses no message.
func TestEachPacketIsInOneRecord(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	p, now := counting(t, probe.FLOWPROBE_WHICH_L2), begin
	var r reader.Reader
	got, want := map[packet.Packet][2]uint64{}, map[packet.Packet][2]uint64{}
	read := func() {
		_, _, messages := p.Messages(now)
		for _, m := range messages {
			records, err := r.Read(m)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range records {
				k := packet.Packet{Src: one.Src, Dst: one.Dst, SrcPort: one.SrcPort, DstPort: one.DstPort}
				got[k] = [2]uint64{got[k][0] + one.Packets, got[k][1] + one.Bytes}
			}
		}
	}
	read() // the templates come before records
	for range 20_000 {
		h := tcp("10.1.0.1:1000", "10.2.0.1:80")
		if random.IntN(3) == 0 {
			h = tcp("[fd00::1]:1000", "[fd01::1]:80")
		}
		h.SrcPort = uint16(random.IntN(60))
		octets := uint64(40 + random.IntN(1000))
		at := Passage{In: 2, Out: uint32(1 + random.IntN(2)), Octets: func() uint64 { return octets }, At: now}
		if p.Count(&h, at); at.Out == 1 {
			k := packet.Packet{Src: h.Src, Dst: h.Dst, SrcPort: h.SrcPort, DstPort: h.DstPort}
			want[k] = [2]uint64{want[k][0] + 1, want[k][1] + octets}
		}
		now = now.Add(time.Duration(random.IntN(4)) * time.Millisecond)
		if random.IntN(200) == 0 {
			now = now.Add(time.Duration(random.IntN(8)) * time.Second)
		}
		if random.IntN(50) == 0 {
			read()
		}
	}
	for range 20 {
		now = now.Add(time.Second)
		read()
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || r.Lost+r.Unknown > 0 {
		t.Errorf("lost %d, unknown %d (-want +got):\n%s", r.Lost, r.Unknown, diff)
	}
	if len(p.entries) > 0 {
		t.Errorf("%d connections are known after silence", len(p.entries))
	}
}

// TestWhatIsNotCounted: one family of two, packets that come in, another interface, one that was deleted, and the exporter's messages.
func TestWhatIsNotCounted(t *testing.T) {
	p := counting(t, probe.FLOWPROBE_WHICH_IP4)
	four, six := tcp("10.1.0.1:1000", "10.2.0.1:80"), tcp("[fd00::1]:1000", "[fd01::1]:80")
	own := packet.NewUDP(netip.MustParseAddrPort("10.9.9.1:4739"), netip.MustParseAddrPort("10.9.9.9:4740"))
	count := func(h *packet.Packet, at Passage, want int) {
		t.Helper()
		at.At, at.Octets = begin, func() uint64 { return 40 }
		if p.Count(h, at); len(p.entries) != want {
			t.Errorf("%d connections, want %d", len(p.entries), want)
		}
	}
	count(&six, Passage{Out: 1}, 0)
	count(&four, Passage{In: 1}, 0)
	count(&four, Passage{Out: 2}, 0)
	count(&own, Passage{Out: 1}, 0)
	count(&four, Passage{Out: 1}, 1)
	p.InterfaceDeleted(1)
	other := tcp("10.1.0.7:1000", "10.2.0.1:80")
	count(&other, Passage{Out: 1}, 1)
	again := &probe.FlowprobeInterfaceAddDel{Which: probe.FLOWPROBE_WHICH_IP4, SwIfIndex: interface_types.InterfaceIndex(1), Direction: probe.FLOWPROBE_DIRECTION_TX}
	p.Set(again)
	again.IsAdd = true
	p.Set(again)
	count(&other, Passage{Out: 1}, 2)
}
