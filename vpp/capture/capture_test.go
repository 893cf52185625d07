package capture

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// written is a capture that VPP 25.10 wrote: a denied TCP packet of 40 bytes.
const written = "d4c3b2a1020004000000000000000000" + "0000010001000000" + "d667096b83360e005c0000005c000000" +
	"02fe0000000102ca000000010800" + "4500002800004000400 61cc50a0209070a010102" + "03e90050000000000000000 05002ffff8d9e0000" +
	"61636c2d706c7567696e2d696e2d6970342d66613a2041434c2064656e79207061636b657473"

func fileOf(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(written, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var addrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestParseWhatVPPWrote(t *testing.T) {
	got, err := Parse(fileOf(t))
	want := []Packet{{
		Src: netip.MustParseAddr("10.2.9.7"), Dst: netip.MustParseAddr("10.1.1.2"), Protocol: 6, SrcPort: 1001, DstPort: 80, Flags: 2, Bytes: 40,
		Node: "acl-plugin-in-ip4-fa", Error: "ACL deny packets",
	}}
	if diff := cmp.Diff(want, got, addrs); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, cut := range []int{0, 23, 30, 60} {
		if _, err := Parse(fileOf(t)[:cut]); !errors.Is(err, ErrFile) {
			t.Errorf("%d bytes: %v", cut, err)
		}
	}
}

func TestParseFrames(t *testing.T) {
	four := "4500001c00004000401100000a0101020a010103" + "04d20035000800 00"
	six := "6000000000081140" + "fd000000000000000000000000000001" + "fd000000000000000000000000000002" + "04d2003500080000"
	v4, v6 := [2]string{"10.1.1.2", "10.1.1.3"}, [2]string{"fd00::1", "fd00::2"}
	for _, c := range []struct {
		name, frame string
		ends        [2]string
		ports       [2]uint16
		protocol    uint8
		bytes       int
		node        string
	}{
		{"without Ethernet", four, v4, [2]uint16{1234, 53}, 17, 28, ""},
		{"one tag", "0000000000000000000000008100000a0800" + four, v4, [2]uint16{1234, 53}, 17, 28, ""},
		{"padding before the reason", "0000000000000000000000000800" + four + "0000000000" + hex.EncodeToString([]byte("ip4-drop: blackholed")), v4, [2]uint16{1234, 53}, 17, 28, "ip4-drop"},
		{"a later fragment", "0000000000000000000000000800" + strings.Replace(four, "00004000", "00000010", 1), v4, [2]uint16{}, 17, 28, ""},
		{"IPv6", "00000000000000000000000086dd" + strings.Replace(six, "60000000000811", "60000000000811", 1), v6, [2]uint16{1234, 53}, 17, 48, ""},
		{"ICMP", "0000000000000000000000000800" + strings.Replace(four, "401100", "400100", 1), v4, [2]uint16{0x04, 0xd2}, 1, 28, ""},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.frame, " ", ""))
		if err != nil {
			t.Fatal(c.name, err)
		}
		if c.name == "IPv6" {
			copy(b[14:], []byte{0x60, 0, 0, 0, 0, 8, 17, 64})
		}
		p, ok := parseFrame(b)
		if !ok || p.Src != netip.MustParseAddr(c.ends[0]) || p.Dst != netip.MustParseAddr(c.ends[1]) || p.SrcPort != c.ports[0] || p.DstPort != c.ports[1] ||
			p.Protocol != c.protocol || p.Bytes != c.bytes || p.Node != c.node {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
	for _, frame := range []string{"", "00", strings.Repeat("00", 12) + "0806" + strings.Repeat("00", 28), "4100001c00004000401100000a0101020a010103"} {
		b, _ := hex.DecodeString(frame)
		if p, ok := parseFrame(b); ok {
			t.Errorf("%s is an IP packet: %+v", frame, p)
		}
	}
}

// Any bytes are read without a panic, and no packet is longer than an IP packet can be.
func FuzzParse(f *testing.F) {
	f.Add(fileOf(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		packets, err := Parse(b)
		if err == nil && len(b) < fileHeader {
			t.Error("no header, and no error")
		}
		for _, p := range packets {
			if !p.Src.IsValid() || !p.Dst.IsValid() || p.Bytes > 65535+40 {
				t.Errorf("%+v", p)
			}
		}
	})
}

// printed is from VPP 25.10: a session that an input made, and one that an output made, each with both of its entries.
const printed = `Sessions active: add 10 - deact 0 = 2
IPv4 Session lookup hash table:
[27467]: heap offset 74184960, len 1, refcnt 2, linear 0
    0: l3 10.1.1.2 -> 10.2.0.7 l4 lsb_of_sw_if_index 7 proto 6 l4_is_input 1 l4_slow_path 0 l4_flags 0x01 port 80 -> 1000 | sess id 5 thread id 0 epoch 0003
    0: l3 10.2.0.7 -> 10.1.1.2 l4 lsb_of_sw_if_index 7 proto 6 l4_is_input 0 l4_slow_path 0 l4_flags 0x00 port 1000 -> 80 | sess id 5 thread id 0 epoch 0003
    0: l3 fd00::2 -> fd00::1 l4 lsb_of_sw_if_index 7 proto 17 l4_is_input 0 l4_slow_path 0 l4_flags 0x00 port 53 -> 1004 | sess id 8 thread id 1 epoch 8003
    0: l3 fd00::1 -> fd00::2 l4 lsb_of_sw_if_index 7 proto 17 l4_is_input 1 l4_slow_path 0 l4_flags 0x01 port 1004 -> 53 | sess id 8 thread id 1 epoch 8003
    0: l3 bad -> 10.1.1.2 l4 lsb_of_sw_if_index 7 proto 6 l4_is_input 0 l4_slow_path 0 l4_flags 0x00 port 1000 -> 80 | sess id 6 thread id 0 epoch 0003
    0: l3 10.2.0.7 -> 10.1.1.2 l4 lsb_of_sw_if_index 7 proto 6 l4_is_input 0 l4_slow_path 0 l4_flags 0x00 port 99999 -> 80 | sess id 6 thread id 0 epoch 0003
`

// answers is a VPP of prepared answers.
type answers struct {
	t     *testing.T
	texts map[string]string
	sent  []string
	on    string // the file of the running capture
	count string
	dir   string
	look  func() // called by each question about the capture; may be nil
}

func (a *answers) do(ctx context.Context, calls ...vpp.Call) (out []vpp.Reply) {
	for _, c := range calls {
		r := vpp.Reply{Err: ctx.Err()}
		if r.Err != nil {
			out = append(out, r)
			continue
		}
		switch m := c.Msg.(type) {
		case *vlib.CliInband:
			text := a.texts[m.Cmd]
			if m.Cmd == status {
				if a.look != nil {
					a.look()
				}
				text = "pcap dispatch capture disabled\n"
				if a.on != "" {
					text = "pcap drop dispatch capture enabled: " + a.count + " of 1000 pkts...\ncapture to file /tmp/" + a.on + "\n"
				}
			}
			r.Msg = &vlib.CliInbandReply{Reply: text}
			a.sent = append(a.sent, m.Cmd)
		case *interfaces.PcapTraceOn:
			if a.on != "" {
				r.Err = api.INVALID_VALUE
			}
			a.on, a.sent = m.Filename, append(a.sent, "on "+m.Filename)
			if m.CaptureRx && m.CaptureTx && !m.CaptureDrop {
				a.sent[len(a.sent)-1] += fmt.Sprintf(" at %d, %d x %d", m.SwIfIndex, m.MaxPackets, m.MaxBytesPerPacket)
			}
		case *interfaces.PcapTraceOff:
			if a.count == "0" {
				a.on, a.sent, r.Err = "", append(a.sent, "off"), &vpp.Retval{Code: int32(api.NO_SUCH_ENTRY)}
				break
			}
			if err := os.WriteFile(filepath.Join(a.dir, a.on), fileOf(a.t), 0o600); err != nil {
				a.t.Fatal(err)
			}
			a.on, a.sent = "", append(a.sent, "off")
		}
		out = append(out, r)
	}
	return out
}

func TestSessions(t *testing.T) {
	a := &answers{t: t, texts: map[string]string{"show acl-plugin sessions": printed, "show acl-plugin sessions verbose 1": printed}}
	got, err := Sessions(t.Context(), a.do, 2)
	want := []Session{
		{Src: netip.MustParseAddr("10.2.0.7"), Dst: netip.MustParseAddr("10.1.1.2"), Protocol: 6, SrcPort: 1000, DstPort: 80, Interface: 7, ID: "0/5"},
		{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), Protocol: 17, SrcPort: 1004, DstPort: 53, Input: true, Interface: 7, ID: "1/8"},
	}
	if diff := cmp.Diff(want, got, addrs); diff != "" || err != nil {
		t.Error(diff, err)
	}
	a.sent = nil
	if _, err := Sessions(t.Context(), a.do, 1); !errors.Is(err, ErrMany) || len(a.sent) != 1 {
		t.Errorf("too many: %v, after %q", err, a.sent)
	}
}

// A capture begins, is read when it has packets, and changes between two files; another program's is left alone.
func TestDrops(t *testing.T) {
	a := &answers{t: t, dir: t.TempDir(), count: "0"}
	d := NewDrops(a.dir, "x", 1000)
	read := func(packets int, full bool, sent ...string) {
		t.Helper()
		a.sent = nil
		c, err := d.Read(t.Context(), a.do)
		if err != nil || len(c.Packets) != packets || c.Full != full {
			t.Errorf("%+v, %v", c, err)
		}
		if diff := cmp.Diff(sent, a.sent); diff != "" {
			t.Error(diff)
		}
		if files, _ := os.ReadDir(a.dir); len(files) > 0 {
			t.Errorf("%v is left", files)
		}
	}
	if err := os.WriteFile(filepath.Join(a.dir, "contiv-flows-x-1.pcap"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	read(0, false, status, "on contiv-flows-x-0.pcap")
	read(0, false, status)
	a.count = "1"
	read(1, false, status, "off", "on contiv-flows-x-1.pcap")
	a.count = "1000"
	read(1, true, status, "off", "on contiv-flows-x-0.pcap")
	d = NewDrops(a.dir, "x", 1000) // another agent takes the capture over
	a.count = "2"
	read(1, false, status, "off", "on contiv-flows-x-1.pcap")
	a.on, a.sent = "mine.pcap", nil
	if _, err := d.Read(t.Context(), a.do); !errors.Is(err, ErrForeign) || len(a.sent) != 1 {
		t.Errorf("a foreign capture: %v, after %q", err, a.sent)
	}
	a.on = "contiv-flows-x-0.pcap"
	d.folder = t.TempDir()
	if _, err := d.Read(t.Context(), a.do); err == nil || !strings.Contains(err.Error(), "must see VPP's /tmp") {
		t.Errorf("another /tmp: %v", err)
	}
}
