// Package capture models VPP's capture of packets: it turns those that an interface receives and sends, or those that VPP drops, into a pcap file in
// /tmp when the capture ends.
//
// Invariant: one capture at a time; a full one keeps its first packets. It is not safe for concurrent use.
package capture

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// folder is the folder of all captures of VPP.
const folder = "/tmp"

// Capture is the capture of a VPP. Its zero value is off. It keeps headers of packets without their data.
type Capture struct {
	wanted  *interfaces.PcapTraceOn // nil: off
	packets [][]byte
}

// Start is pcap_trace_on.
func (c *Capture) Start(m *interfaces.PcapTraceOn) (retval int32) {
	switch {
	case m.Filename == "" || strings.Contains(m.Filename, "/") || strings.Contains(m.Filename, ".."):
		return int32(api.ILLEGAL_NAME)
	case c.wanted != nil:
		return int32(api.INVALID_VALUE)
	case m.MaxBytesPerPacket < 32 || m.MaxBytesPerPacket > 9000:
		return int32(api.INVALID_MEMORY_SIZE)
	}
	wanted := *m
	c.wanted, c.packets = &wanted, nil
	return 0
}

// Stop is pcap_trace_off: it writes the file, if the capture has packets.
func (c *Capture) Stop() (retval int32) {
	if c.wanted == nil {
		return int32(api.VALUE_EXIST)
	}
	path := filepath.Join(folder, c.wanted.Filename)
	c.wanted = nil
	if len(c.packets) == 0 {
		return int32(api.NO_SUCH_ENTRY)
	}
	file := make([]byte, 24)
	for i, v := range []uint32{0xa1b2c3d4, 4<<16 | 2, 0, 0, 65536, 1} {
		binary.LittleEndian.PutUint32(file[4*i:], v)
	}
	for _, p := range c.packets {
		file = append(file, make([]byte, 8)...) // the time
		file = binary.LittleEndian.AppendUint32(file, uint32(len(p)))
		file = binary.LittleEndian.AppendUint32(file, uint32(len(p)))
		file = append(file, p...)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return int32(api.SYSCALL_ERROR_1)
	}
	return 0
}

// Status is the output of `pcap trace status`.
func (c *Capture) Status() string {
	if c.wanted == nil {
		return "pcap dispatch capture disabled\n"
	}
	kinds := ""
	for _, k := range []struct {
		on   bool
		name string
	}{{c.wanted.CaptureRx, "rx "}, {c.wanted.CaptureTx, "tx "}, {c.wanted.CaptureDrop, "drop "}} {
		if k.on {
			kinds += k.name
		}
	}
	return fmt.Sprintf("pcap %sdispatch capture enabled: %d of %d pkts...\ncapture to file %s\n", kinds, len(c.packets), c.wanted.MaxPackets, filepath.Join(folder, c.wanted.Filename))
}

// Add keeps a packet that a node dropped, with the reason behind it.
func (c *Capture) Add(p *packet.Packet, node, text string) {
	if c.wanted == nil || !c.wanted.CaptureDrop {
		return
	}
	if text = strings.TrimPrefix(text, "drop: "); strings.HasPrefix(node, "acl-plugin-") {
		text = "ACL deny packets"
	}
	c.keepFrame(p, node+": "+text)
}

// Pass keeps a packet that an interface received, or sent. Index 0 asks for those of all interfaces.
func (c *Capture) Pass(p *packet.Packet, index uint32, sent bool) {
	if w := c.wanted; w != nil && (sent && w.CaptureTx || !sent && w.CaptureRx) && (w.SwIfIndex == 0 || uint32(w.SwIfIndex) == index) {
		c.keepFrame(p, "")
	}
}

// keepFrame keeps a packet with Ethernet addresses of zeros, and what is behind it.
func (c *Capture) keepFrame(p *packet.Packet, behind string) {
	b, err := p.Marshal()
	if err != nil || len(c.packets) >= int(c.wanted.MaxPackets) {
		return
	}
	kind := []byte{0x08, 0x00}
	if p.Dst.Is6() {
		kind = []byte{0x86, 0xdd}
	}
	frame := append(append(make([]byte, 12), kind...), b...)
	frame = append(frame, behind...)
	c.packets = append(c.packets, frame[:min(len(frame), int(c.wanted.MaxBytesPerPacket))])
}
