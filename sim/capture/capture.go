// Package capture models VPP's capture of dropped packets: it turns them into a pcap file in /tmp when the capture ends.
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

// Capture is the capture of a VPP. Its zero value is off. Of received and sent packets it keeps none.
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
	return fmt.Sprintf("pcap drop dispatch capture enabled: %d of %d pkts...\ncapture to file %s\n", len(c.packets), c.wanted.MaxPackets, filepath.Join(folder, c.wanted.Filename))
}

// Add keeps a packet that a node dropped, with the reason behind it. Ethernet addresses are zeros.
func (c *Capture) Add(p *packet.Packet, node, text string) {
	if c.wanted == nil || !c.wanted.CaptureDrop || len(c.packets) >= int(c.wanted.MaxPackets) {
		return
	}
	b, err := p.Marshal()
	if err != nil {
		return
	}
	if text = strings.TrimPrefix(text, "drop: "); strings.HasPrefix(node, "acl-plugin-") {
		text = "ACL deny packets"
	}
	kind := []byte{0x08, 0x00}
	if p.Dst.Is6() {
		kind = []byte{0x86, 0xdd}
	}
	frame := append(append(make([]byte, 12), kind...), b...)
	frame = append(frame, node+": "+text...)
	c.packets = append(c.packets, frame[:min(len(frame), int(c.wanted.MaxBytesPerPacket))])
}
