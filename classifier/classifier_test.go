package classifier

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
)

// packet describes a packet for the test's classifier.
type packet struct {
	src, dst           netip.Addr
	sport, dport       uint16
	protocol           byte // of IPv4, or the first next header of IPv6
	chunk              byte
	words              byte   // IPv4: header length in words; 0 means 5
	fragment           uint16 // IPv4: fragment word
	second             byte   // IPv6: next header of the first extension header
	fragmentOffset     uint16 // IPv6: fragment word of that header
	behind             byte   // IPv6: chunk type after a fragment header
	beyond, identifier byte   // noise
}

// bytes are the bytes that the classifier reads.
func (p packet) bytes() []byte {
	b := make([]byte, 80)
	for i := range b {
		b[i] = p.beyond
	}
	if p.src.Is4() {
		b[0] = 0x40 | max(p.words, 5)
		b[4], b[5] = p.identifier, p.beyond
		b[6], b[7] = byte(p.fragment>>8), byte(p.fragment)
		b[9] = p.protocol
		copy(b[12:], p.src.AsSlice())
		copy(b[16:], p.dst.AsSlice())
		put(b[20:], p.sport, p.dport, p.chunk)
		return b
	}
	b[0], b[6] = 0x60, p.protocol
	copy(b[8:], p.src.AsSlice())
	copy(b[24:], p.dst.AsSlice())
	if p.protocol == sctp {
		put(b[40:], p.sport, p.dport, p.chunk)
		return b
	}
	b[40] = p.second
	b[42], b[43] = byte(p.fragmentOffset>>8), byte(p.fragmentOffset)
	b[60] = p.behind
	return b
}

func put(b []byte, sport, dport uint16, chunk byte) {
	b[0], b[1], b[2], b[3] = byte(sport>>8), byte(sport), byte(dport>>8), byte(dport)
	b[12] = chunk
}

// passes evaluates a program as VPP's classifier does.
func (p Program) passes(b []byte) bool {
	for _, t := range p {
		got := make([]byte, len(t.Mask))
		for i := range got {
			got[i] = b[i] & t.Mask[i]
		}
		for _, e := range t.Entries {
			if e.Match == string(got) {
				return e.Pass
			}
		}
	}
	return true
}

// literal evaluates the rules directly.
func literal(rules []Rule, p packet) bool {
	for _, r := range rules {
		if r.Source.Contains(p.src) && r.Destination.Contains(p.dst) &&
			r.From.First <= p.sport && p.sport <= r.From.Last && r.To.First <= p.dport && p.dport <= r.To.Last {
			return r.Permit
		}
	}
	return false
}

func drawNetwork(t *rapid.T, v6 bool) netip.Prefix {
	a := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 7).Draw(t, "host"))})
	lengths := []int{0, 8, 29, 30, 31, 32}
	if v6 {
		b := [16]byte{0xfd, 15: byte(rapid.IntRange(0, 7).Draw(t, "host"))}
		a, lengths = netip.AddrFrom16(b), []int{0, 7, 125, 126, 127, 128}
	}
	return netip.PrefixFrom(a, rapid.SampledFrom(lengths).Draw(t, "length")).Masked()
}

func drawRange(t *rapid.T, kinds int) Range {
	switch rapid.IntRange(0, kinds-1).Draw(t, "range") {
	case 0:
		return all
	case 1:
		p := uint16(rapid.IntRange(0, 9).Draw(t, "port"))
		return Range{p, p}
	case 2:
		a, b := uint16(rapid.IntRange(0, 9).Draw(t, "first")), uint16(rapid.IntRange(0, 9).Draw(t, "last"))
		return Range{min(a, b), max(a, b)}
	}
	return Range{uint16(rapid.IntRange(0, 9).Draw(t, "first")), maxPort} // up to 16 masks
}

func drawRules(t *rapid.T) []Rule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rule {
		v6 := rapid.Bool().Draw(t, "v6")
		return Rule{rapid.Bool().Draw(t, "permit"), drawNetwork(t, v6), drawNetwork(t, v6), drawRange(t, 2), drawRange(t, 4)}
	}), 1, 6).Draw(t, "rules")
}

func drawPacket(t *rapid.T) packet {
	v6 := rapid.Bool().Draw(t, "packet v6")
	addr := func(name string) netip.Addr {
		host := byte(rapid.IntRange(0, 8).Draw(t, name))
		if v6 {
			return netip.AddrFrom16([16]byte{0xfd, 15: host})
		}
		return netip.AddrFrom4([4]byte{10, 0, 0, host})
	}
	return packet{
		src: addr("src"), dst: addr("dst"), protocol: sctp, chunk: chunkInit,
		sport:  rapid.SampledFrom([]uint16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 256, 40000, 65535}).Draw(t, "sport"),
		dport:  rapid.SampledFrom([]uint16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 256, 40000, 65535}).Draw(t, "dport"),
		beyond: rapid.Byte().Draw(t, "noise"), identifier: rapid.Byte().Draw(t, "identifier"),
	}
}

// An INIT passes if the first rule that matches permits it. All other packets that hide nothing pass.
func TestFirstMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t)
		p, err := Compile(&acl.SCTPPorts{Interface: "tap1", Input: messages(&Direction{Rules: rules})})
		if errors.Is(err, ErrTooMany) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			q := drawPacket(t)
			program := p.Input.V4
			if q.src.Is6() {
				program = p.Input.V6
			}
			if got, want := program.passes(q.bytes()), literal(rules, q); got != want {
				t.Fatalf("INIT %+v passes: %t, want %t", q, got, want)
			}
			q.chunk = rapid.ByteRange(2, 255).Draw(t, "chunk")
			if !program.passes(q.bytes()) {
				t.Fatalf("%+v does not pass", q)
			}
			q.chunk, q.protocol = chunkInit, rapid.SampledFrom([]byte{2, tcp, udp, 47, 50, 59, 131, 133}).Draw(t, "protocol")
			if !program.passes(q.bytes()) {
				t.Fatalf("protocol %d does not pass", q.protocol)
			}
		}
		again, ok := Rules(p.Input.V4, p.Input.V6)
		if !ok {
			t.Fatal("the tables are not read as rules")
		}
		for _, l := range []*layout{&ip4, &ip6} {
			program := p.Input.V4
			if l.v6 {
				program = p.Input.V6
			}
			if same, err := compile(again, l); err != nil || !same.Equal(program) {
				t.Fatalf("rules read from tables make other tables (%v):\n%v\n%v", err, program, same)
			}
		}
	})
}

// A packet that may hide an INIT is dropped, whatever is permitted. A packet that cannot, passes.
func TestHiddenInitIsDropped(t *testing.T) {
	any4, any6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	p, err := Compile(&acl.SCTPPorts{Interface: "tap1", Output: messages(&Direction{Rules: []Rule{{true, any4, any4, all, all}, {true, any6, any6, all, all}}})})
	if err != nil {
		t.Fatal(err)
	}
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, c := range []struct {
		what string
		p    packet
		want bool
	}{
		{"INIT", packet{src: four, protocol: sctp, chunk: 1}, true},
		{"INIT, not to be fragmented", packet{src: four, protocol: sctp, chunk: 1, fragment: 0x4000}, true},
		{"options", packet{src: four, protocol: sctp, chunk: 0, words: 6}, false},
		{"most options", packet{src: four, protocol: sctp, chunk: 0, words: 15}, false},
		{"options of GRE", packet{src: four, protocol: 47, words: 7}, true},
		{"options of TCP", packet{src: four, protocol: tcp, words: 7}, true},
		{"a first fragment that is an INIT", packet{src: four, protocol: sctp, chunk: 1, fragment: more4}, false},
		{"a first fragment of data", packet{src: four, protocol: sctp, chunk: 0, fragment: more4}, true},
		{"the second unit", packet{src: four, protocol: sctp, chunk: 0, fragment: more4 | 1}, false},
		{"the second unit, the last", packet{src: four, protocol: sctp, chunk: 0, fragment: 1}, false},
		{"a later fragment that looks like an INIT", packet{src: four, protocol: sctp, chunk: 1, fragment: more4 | 185}, true},
		{"the second unit of UDP", packet{src: four, protocol: udp, chunk: 0, fragment: more4 | 1}, true},
		{"INIT in IPv6", packet{src: six, protocol: sctp, chunk: 1}, true},
		{"INIT behind options", packet{src: six, protocol: 0, second: sctp}, false},
		{"INIT behind destination options", packet{src: six, protocol: 60, second: sctp}, false},
		{"options behind options", packet{src: six, protocol: 0, second: 60}, false},
		{"options behind a fragment header", packet{src: six, protocol: fragment, second: 60}, false},
		{"a fragment behind options", packet{src: six, protocol: 0, second: fragment}, false},
		{"membership of groups: ICMPv6 behind options", packet{src: six, protocol: 0, second: icmp6}, true},
		{"an INIT in a fragment", packet{src: six, protocol: fragment, second: sctp, fragmentOffset: 1, behind: 1}, false},
		{"an INIT in the only fragment", packet{src: six, protocol: fragment, second: sctp, behind: 1}, false},
		{"data in a fragment", packet{src: six, protocol: fragment, second: sctp, fragmentOffset: 1, behind: 0}, true},
		{"the second unit in IPv6", packet{src: six, protocol: fragment, second: sctp, fragmentOffset: 1<<3 | 1, behind: 0}, false},
		{"a later fragment in IPv6", packet{src: six, protocol: fragment, second: sctp, fragmentOffset: 2 << 3, behind: 1}, true},
		{"a fragment of UDP", packet{src: six, protocol: fragment, second: udp, fragmentOffset: 1<<3 | 1, behind: 1}, true},
		{"no next header", packet{src: six, protocol: 59}, true},
	} {
		c.p.dst = c.p.src
		program := p.Output.V4
		if c.p.src.Is6() {
			program = p.Output.V6
		}
		if got := program.passes(c.p.bytes()); got != c.want {
			t.Errorf("%s passes: %t", c.what, got)
		}
	}
	if p.Input != nil {
		t.Error("a direction without rules is looked at")
	}
}

func rule(permit bool, source, destination string, from, to *acl.SCTPPorts_Ports) *acl.SCTPPorts_Rule {
	return &acl.SCTPPorts_Rule{Permit: permit, SourceNetwork: source, DestinationNetwork: destination, Source: from, Destination: to}
}

func TestMessage(t *testing.T) {
	m := &acl.SCTPPorts{
		Interface: "tap1",
		Input:     []*acl.SCTPPorts_Rule{rule(true, "10.0.0.0/8", "10.1.1.2/32", nil, &acl.SCTPPorts_Ports{Lower: 80, Upper: 80}), rule(false, "fd00::/8", "::/0", nil, nil)},
		Output:    []*acl.SCTPPorts_Rule{rule(true, "0.0.0.0/0", "0.0.0.0/0", &acl.SCTPPorts_Ports{Upper: 1023}, nil)},
	}
	p, err := Compile(m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, p.Message(), protocmp.Transform()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestInvalid(t *testing.T) {
	ok := rule(true, "10.0.0.0/8", "10.1.1.2/32", nil, nil)
	for want, m := range map[string]*acl.SCTPPorts{
		"interface: empty":                            {Input: []*acl.SCTPPorts_Rule{ok}},
		"input, output: both empty":                   {Interface: "tap1"},
		`input[0].source_network: "" is not`:          {Interface: "tap1", Input: []*acl.SCTPPorts_Rule{rule(true, "", "10.1.1.2/32", nil, nil)}},
		"output[1].source_network: 10.0.0.1/8 has":    {Interface: "tap1", Output: []*acl.SCTPPorts_Rule{ok, rule(true, "10.0.0.1/8", "10.1.1.2/32", nil, nil)}},
		`destination_network: "10.1.1.2" is not`:      {Interface: "tap1", Input: []*acl.SCTPPorts_Rule{rule(true, "10.0.0.0/8", "10.1.1.2", nil, nil)}},
		"destination_network: ::/0 is not of the f":   {Interface: "tap1", Input: []*acl.SCTPPorts_Rule{rule(true, "10.0.0.0/8", "::/0", nil, nil)}},
		`"::ffff:10.0.0.0/104" is not`:                {Interface: "tap1", Input: []*acl.SCTPPorts_Rule{rule(true, "::ffff:10.0.0.0/104", "::/0", nil, nil)}},
		"source.upper: 65536 is above 65535":          {Interface: "tap1", Input: []*acl.SCTPPorts_Rule{rule(true, "::/0", "::/0", &acl.SCTPPorts_Ports{Upper: 65536}, nil)}},
		"destination.lower: 9 is above the upper po":  {Interface: "tap1", Input: []*acl.SCTPPorts_Rule{rule(true, "::/0", "::/0", nil, &acl.SCTPPorts_Ports{Lower: 9, Upper: 8})}},
		"input: too many for VPP's classifier: more ": {Interface: "tap1", Input: many(5000)},
		"classifier: 257 tables":                      {Interface: "tap1", Input: masks(253)},
	} {
		_, err := Compile(m)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(want, "classifier") != errors.Is(err, ErrTooMany) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Compile(&acl.SCTPPorts{Interface: "tap1", Input: masks(252)}); err != nil {
		t.Error(err)
	}
}

// many returns n rules that all have the same mask.
func many(n int) (out []*acl.SCTPPorts_Rule) {
	for i := range n {
		port := &acl.SCTPPorts_Ports{Lower: uint32(i), Upper: uint32(i)}
		out = append(out, rule(true, "10.0.0.0/8", "10.1.1.2/32", nil, port))
	}
	return out
}

// masks returns rules that need n tables.
func masks(n int) (out []*acl.SCTPPorts_Rule) {
	for i := range n {
		from, to := netip.PrefixFrom(netip.IPv4Unspecified(), i%32+1), netip.PrefixFrom(netip.IPv4Unspecified(), i/32+1)
		out = append(out, rule(true, from.String(), to.String(), nil, nil))
	}
	return out
}

// Rules that permit need one table for each mask, whatever their order.
func TestOneTableForEachMask(t *testing.T) {
	var rules []*acl.SCTPPorts_Rule
	for i := range 100 {
		port := uint32(1000 + i)
		rules = append(rules, rule(true, "10.0.0.0/8", "10.1.1.2/32", nil, &acl.SCTPPorts_Ports{Lower: port, Upper: port}))
		rules = append(rules, rule(true, "10.1.0.0/16", "10.1.1.2/32", nil, nil))
	}
	p, err := Compile(&acl.SCTPPorts{Interface: "tap1", Input: rules})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(p.Input.V4) - len(ip4.hidden()) - 2; n != 2 {
		t.Errorf("%d tables for two masks", n)
	}
}

func TestBlocks(t *testing.T) {
	for r, want := range map[Range]int{all: 1, {0, 0}: 1, {1, 65534}: 30, {80, 81}: 1, {81, 82}: 2, {65535, 65535}: 1, {32768, 65535}: 1, {0, 1023}: 1} {
		list := r.blocks()
		next := uint32(r.First)
		for _, b := range list {
			p := b.portRange()
			if uint32(p.First) != next {
				t.Errorf("%v: block %v does not begin at %d", r, p, next)
			}
			next = uint32(p.Last) + 1
		}
		if next != uint32(r.Last)+1 || len(list) != want {
			t.Errorf("%v: %d blocks up to %d, want %d", r, len(list), next, want)
		}
	}
}
