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
