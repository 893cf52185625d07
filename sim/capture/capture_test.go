package capture

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// A capture keeps the first packets and is written when it ends, as VPP does; return values are those of VPP.
func TestCapture(t *testing.T) {
	var c Capture
	name := fmt.Sprintf("contiv-capture-test-%d", time.Now().UnixNano())
	p := packet.NewTCP(netip.MustParseAddrPort("10.1.1.2:1"), netip.MustParseAddrPort("10.1.1.3:2"))
	p.TTL = 64
	want := func(what string, got int32, want api.VPPApiError) {
		t.Helper()
		if got != int32(want) {
			t.Errorf("%s: %d, not %d", what, got, want)
		}
	}
	on := &interfaces.PcapTraceOn{CaptureDrop: true, MaxPackets: 2, MaxBytesPerPacket: 64, Filename: name}
	c.Add(&p, "ip4-drop", "drop: nothing")
	want("off before on", c.Stop(), api.VALUE_EXIST)
	want("a path", c.Start(&interfaces.PcapTraceOn{Filename: "../x", MaxBytesPerPacket: 64}), api.ILLEGAL_NAME)
	want("little room", c.Start(&interfaces.PcapTraceOn{Filename: name, MaxBytesPerPacket: 31}), api.INVALID_MEMORY_SIZE)
	want("on", c.Start(on), 0)
	want("on again", c.Start(on), api.INVALID_VALUE)
	want("nothing captured", c.Stop(), api.NO_SUCH_ENTRY)
	want("on", c.Start(on), 0)
	for range 3 {
		c.Add(&p, "acl-plugin-in-ip4-fa", "drop: x")
	}
	if text := c.Status(); !strings.Contains(text, "enabled: 2 of 2 pkts") || !strings.Contains(text, "/tmp/"+name) {
		t.Error(text)
	}
	want("off", c.Stop(), 0)
	b, err := os.ReadFile(filepath.Join("/tmp", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join("/tmp", name)); err != nil {
		t.Error(err)
	}
	if len(b) != 24+2*(16+64) || !strings.HasPrefix(string(b[24+16+14+40:]), "acl-plugin") {
		t.Errorf("%d bytes: %x", len(b), b)
	}
}

// A capture of an interface keeps what it receives and sends, as far as asked; the status names it as VPP does.
func TestCaptureOfInterface(t *testing.T) {
	p := packet.NewTCP(netip.MustParseAddrPort("10.1.1.2:1"), netip.MustParseAddrPort("10.1.1.3:2"))
	p.TTL = 64
	for _, c := range []struct {
		rx, tx, drop bool
		index        interface_types.InterfaceIndex
		kept         string // of what is below, in this order
		status       string
	}{
		{true, true, false, 7, "rt", "pcap rx tx dispatch capture enabled: 2 of 9 pkts"},
		{true, false, false, 7, "r", "pcap rx dispatch capture enabled: 1 of 9 pkts"},
		{false, true, false, 0, "tt", "pcap tx dispatch capture enabled: 2 of 9 pkts"},
		{false, false, true, 0, "d", "pcap drop dispatch capture enabled: 1 of 9 pkts"},
	} {
		var all Capture
		if rv := all.Start(&interfaces.PcapTraceOn{CaptureRx: c.rx, CaptureTx: c.tx, CaptureDrop: c.drop, SwIfIndex: c.index, MaxPackets: 9, MaxBytesPerPacket: 64, Filename: "x"}); rv != 0 {
			t.Fatal(rv)
		}
		all.Pass(&p, 7, false)
		all.Pass(&p, 7, true)
		all.Pass(&p, 8, true)
		all.Add(&p, "ip4-drop", "drop: blackholed")
		if len(all.packets) != len(c.kept) || !strings.HasPrefix(all.Status(), c.status) {
			t.Errorf("%+v: %d packets, %s", c, len(all.packets), all.Status())
		}
	}
}
