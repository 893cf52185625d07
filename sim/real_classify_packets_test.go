package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/vlib"

	classifyapi "go.fd.io/govpp/binapi/classify"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/classify"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

func (c *client) cli(cmd string) string {
	c.t.Helper()
	return call1[*vlib.CliInbandReply](c, &vlib.CliInband{Cmd: cmd}).Reply
}

// The packets come by pg0 and leave by pg1, in both VPPs.
func wires(t *testing.T, real *client, v *VPP) {
	t.Helper()
	for _, cmd := range []string{
		"create packet-generator interface pg0", "create packet-generator interface pg1", "set interface mac address pg0 02:00:00:00:00:01",
		"set interface state pg0 up", "set interface state pg1 up", "set interface ip address pg0 10.1.0.1/24", "set interface ip address pg1 10.2.0.1/24",
		"set interface ip address pg0 fd00:1::1/64", "set interface ip address pg1 fd00:2::1/64",
	} {
		if said := real.cli(cmd); strings.Contains(said, "unknown") || strings.Contains(said, "error") {
			t.Fatalf("%s: %s", cmd, said)
		}
	}
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	v.AddInterface(Interface{Name: "pg0", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")})
	v.AddInterface(Interface{Name: "pg1", Addresses: prefixes("10.2.0.1/24", "fd00:2::1/64")})
	fake := dial(t, v)
	for i := range 8 {
		for _, a := range []string{"10.2.0.%d", "fd00:2::%d"} {
			m := &ip_neighbor.IPNeighborAddDel{IsAdd: true, Neighbor: ip_neighbor.IPNeighbor{
				SwIfIndex: 2, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, MacAddress: [6]byte{2, 0, 0, 0, 0, 2}, IPAddress: toAddress(netip.MustParseAddr(fmt.Sprintf(a, 2+i))),
			}}
			real.must(m)
			fake.must(m)
		}
	}
}

// somePacket returns one of few packets, so that tables match them.
func (g *generator) somePacket() Packet {
	src, dst := fmt.Sprintf("10.1.0.%d", 2+g.r.IntN(4)), fmt.Sprintf("10.2.0.%d", 2+g.r.IntN(8))
	if g.r.IntN(2) > 0 {
		src, dst = fmt.Sprintf("fd00:1::%d", 2+g.r.IntN(4)), fmt.Sprintf("fd00:2::%d", 2+g.r.IntN(8))
	}
	p := Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: pick(g, model.SCTP, model.SCTP, model.SCTP, model.TCP, model.UDP, model.ICMP, model.Protocol(47))}
	switch {
	case p.HasPorts():
		p.SrcPort, p.DstPort = pick[uint16](g, 1, 5000, 5001, 65535), pick[uint16](g, 1, 2, 3, 5000, 5001, 40000)
		if p.Proto == model.SCTP {
			p.Chunk = pick(g, packet.Init, packet.Init, packet.InitAck, packet.Data)
		}
	case p.IsICMP():
		p.ICMPType, p.ICMPID = packet.EchoRequest, uint16(g.r.IntN(3))
	}
	return p.ForFamily()
}

// padded returns a packet in wire format, with a link header and so many zeros behind that no table reads beyond.
func padded(t *testing.T, p *Packet) []byte {
	t.Helper()
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	frame := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9}, etherType(p.Dst)...)
	return append(append(frame, b...), make([]byte, 128)...)
}

// chain makes tables whose masks cover the fields in which packets differ, and sessions with bytes of packets. It returns the first
// one's index, which is the same in both VPPs.
func (g *generator) chain(t *testing.T, real, fake *client, list []Packet) uint32 {
	t.Helper()
	next := noIndex
	for range 1 + g.r.IntN(4) {
		m := &classifyapi.ClassifyAddDelTable{
			IsAdd: true, TableIndex: noIndex, Nbuckets: pick[uint32](g, 1, 2, 8), MemorySize: 1 << 20, MatchNVectors: uint32(1 + g.r.IntN(4)), SkipNVectors: uint32(g.r.IntN(2)),
			NextTableIndex: next, MissNextIndex: pick(g, 0, noIndex, noIndex), CurrentDataFlag: pick[uint8](g, 1, 1, 0), CurrentDataOffset: pick[int16](g, 0, 0, 0, 4, -2),
		}
		m.Mask = make([]byte, 16*m.MatchNVectors)
		for range 1 + g.r.IntN(3) {
			m.Mask[g.r.IntN(len(m.Mask))] = pick[byte](g, 0xff, 0xff, 0xfe, 0x0f)
		}
		if m.CurrentDataFlag == 0 && m.SkipNVectors == 0 {
			clear(m.Mask[:12]) // the sim has no addresses of the link
		}
		next = real.newTable(m)
		if i := fake.newTable(m); i != next {
			t.Fatalf("table %d, vpp: %d", i, next)
		}
		for range g.r.IntN(12) {
			s := &classifyapi.ClassifyAddDelSession{IsAdd: true, TableIndex: next, HitNextIndex: pick(g, 0, noIndex), OpaqueIndex: g.r.Uint32()}
			base := pick(g, 0, 14, 14, 18, 12)
			s.Match = padded(t, &list[g.r.IntN(len(list))])[base : base+int(16*(m.SkipNVectors+m.MatchNVectors))]
			real.must(s)
			fake.must(s)
		}
	}
	return next
}

// TestAgainstRealVPPClassifyPackets: random chains of tables at the input and the output of interfaces give random packets the same
// verdict, by the same table of the chain.
func TestAgainstRealVPPClassifyPackets(t *testing.T) {
	real, v := realVPP(t), New(Config{})
	wires(t, real, v)
	fake := dial(t, v)
	seed := envInt(t, "CONTIV_VPP_SEED", 1)
	g := &generator{r: rand.New(rand.NewPCG(uint64(seed), 2))}
	judged, dropped := 0, 0
	for round := range envInt(t, "CONTIV_VPP_STEPS", 1000) / 50 {
		var list []Packet
		for range 100 {
			list = append(list, g.somePacket())
		}
		at := [4]uint32{noIndex, noIndex, noIndex, noIndex}
		for i := range at {
			if g.r.IntN(3) > 0 {
				at[i] = g.chain(t, real, fake, list)
			}
		}
		attach := func(add bool) {
			for i, first := range at {
				for _, c := range []*client{real, fake} {
					if first == noIndex {
						continue
					}
					tables := [2]uint32{noIndex, noIndex}
					tables[i%2] = first
					if i < 2 {
						c.must(&classifyapi.InputACLSetInterface{SwIfIndex: 1, IP4TableIndex: tables[0], IP6TableIndex: tables[1], L2TableIndex: noIndex, IsAdd: add})
					} else {
						c.must(&classifyapi.OutputACLSetInterface{SwIfIndex: 2, IP4TableIndex: tables[0], IP6TableIndex: tables[1], L2TableIndex: noIndex, IsAdd: add})
					}
				}
			}
		}
		attach(true)
		want := realFates(t, real, list)
		for i := range list {
			got := simFate(v, list[i])
			if got != want[i] {
				t.Fatalf("seed %d round %d, %s:\nvpp: %s\nsim: %s\n%s", seed, round, &list[i], want[i], got, v.Dump())
			}
			judged += strings.Count(got, "table")
			dropped += strings.Count(got, "drop")
		}
		attach(false)
		for _, first := range at {
			for _, c := range []*client{real, fake} {
				if first != noIndex {
					c.must(&classifyapi.ClassifyAddDelTable{TableIndex: first, DelChain: true})
				}
			}
		}
	}
	t.Logf("%d verdicts, %d drops", judged, dropped)
	if judged < 500 || dropped < 100 {
		t.Errorf("%d verdicts, %d drops: too few for a comparison", judged, dropped)
	}
}

// simFate returns the verdicts of the nodes, and the fate of the packet.
func simFate(v *VPP, p Packet) string {
	fate := v.Send("pg0", p)
	var b strings.Builder
	for _, h := range fate.Hops {
		if h.Classify == nil {
			continue
		}
		d, k := classify.Input, classify.IP4
		swIf := uint32(1)
		if h.Classify.Output {
			d, swIf = classify.Output, 2
		}
		if p.Dst.Is6() {
			k = classify.IP6
		}
		i := int64(-1)
		if h.Classify.Hit {
			first := v.classify.Attached(d, k, swIf)
			for range h.Classify.Place {
				first, _ = v.nextTable(first)
			}
			i = int64(first)
		}
		fmt.Fprintf(&b, "%s table %d hit %t, ", h.Node, i, h.Classify.Hit)
	}
	if len(fate.Out) == 0 {
		return b.String() + "drop"
	}
	return b.String() + "pass"
}

var verdictOf = regexp.MustCompile(`: (ip[46]-(?:in|out)acl)\s+(?:IN|OUT)ACL: sw_if_index \d+, next_index \d+, table_index (-?\d+), offset (-?\d+)`)

// realFates returns the same for a real VPP, from its traces.
func realFates(t *testing.T, c *client, list []Packet) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "packets.pcap")
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	for _, n := range []uint32{2 | 4<<16, 0, 0, 65535, 1} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	for i := range list {
		f := padded(t, &list[i])
		for _, n := range []uint32{0, 0, uint32(len(f)), uint32(len(f))} {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		b = append(b, f...)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c.cli("clear trace")
	for _, cmd := range []string{"packet-generator delete s", "packet-generator new pcap " + file + " source pg0 name s", fmt.Sprintf("trace add pg-input %d", len(list)), "packet-generator enable"} {
		c.cli(cmd)
	}
	var packets []string
	for range 400 { // until all have ended: a packet in the graph has no last node
		packets = strings.Split(c.cli(fmt.Sprintf("show trace max %d", len(list))), "\nPacket ")[1:]
		if len(packets) == len(list) && !slices.ContainsFunc(packets, func(s string) bool { return endOf(s) == "" }) {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	if len(packets) != len(list) {
		t.Fatalf("%d of %d packets have a trace", len(packets), len(list))
	}
	out := make([]string, len(list))
	for i, s := range packets {
		for _, m := range verdictOf.FindAllStringSubmatch(s, -1) {
			out[i] += fmt.Sprintf("%s table %s hit %t, ", m[1], m[2], m[3] != "-1")
		}
		if out[i] += endOf(s); endOf(s) == "" {
			t.Errorf("%s has not come to an end:\n%s", &list[i], s)
		}
	}
	return out
}

func endOf(trace string) string {
	switch {
	case strings.Contains(trace, "pg1-tx"):
		return "pass"
	case strings.Contains(trace, ": error-drop") || strings.Contains(trace, ": drop"):
		return "drop"
	}
	return ""
}
