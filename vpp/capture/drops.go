// Package capture turns VPP's capture of dropped packets, and its table of access-list sessions, into packets and sessions.
//
// Invariant: only the configured folder's files with this capture's names are read and removed, and a capture of another program is never ended.
package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Do sends requests to VPP; vpp.Conn.Do is one.
type Do func(context.Context, ...vpp.Call) []vpp.Reply

// ErrForeign means that another program captures: VPP has one capture at a time.
var ErrForeign = errors.New("another program captures packets: VPP has one capture at a time (vppctl show: pcap trace status)")

const (
	// mostBytes are kept of each packet: headers, the reason behind a short packet, and little payload.
	mostBytes = 256
	// status is the command that names the file of the running capture, and the number of packets in it.
	status = "pcap trace status"
)

// Drops is a capture of dropped packets (pcap_trace_on, VPP 24.06 to 26.06). VPP writes a capture to a file in its /tmp when it ends.
type Drops struct {
	folder string // VPP's /tmp, as this process sees it
	names  [2]string
	most   uint32
	at     int
}

// NewDrops returns a capture that keeps at most that many packets between two reads. The name must differ from those of other agents
// with the same /tmp, and stay the same after a restart.
func NewDrops(folder, name string, most uint32) *Drops {
	return &Drops{folder: folder, names: [2]string{"contiv-flows-" + name + "-0.pcap", "contiv-flows-" + name + "-1.pcap"}, most: most}
}

// Captured is the result of a read.
type Captured struct {
	Packets []Packet
	Full    bool // VPP dropped more packets than the capture holds
}

// running matches the status of a running capture.
var running = regexp.MustCompile(`capture enabled: (\d+) of (\d+) pkts[^\n]*\n?\s*capture to file (\S+)`)

// Read returns the packets that VPP dropped since the last call, and captures the next ones. The first call only begins. A VPP without
// workers drops no packet between the end of a capture and the start of the next. The capture continues when the agent ends, until it is full.
func (d *Drops) Read(ctx context.Context, do Do) (Captured, error) {
	text, err := command(ctx, do, status)
	if err != nil {
		return Captured{}, err
	}
	on := running.FindStringSubmatch(text)
	if on == nil {
		return Captured{}, d.beginCapture(ctx, do)
	}
	name := filepath.Base(on[3])
	if name != d.names[0] && name != d.names[1] {
		return Captured{}, fmt.Errorf("%w: %s", ErrForeign, on[3])
	}
	if on[1] == "0" {
		return Captured{}, nil
	}
	if d.at = 0; name == d.names[0] {
		d.at = 1
	}
	r := do(ctx, vpp.Call{Msg: &interfaces.PcapTraceOff{}, Joined: true, AtOnce: true}, vpp.Call{Msg: d.turnOn()})
	if err := errors.Join(r[0].Err, r[1].Err); err != nil {
		return Captured{}, fmt.Errorf("capture of dropped packets: %w", err)
	}
	packets, err := d.take(name)
	return Captured{packets, on[1] == on[2]}, err
}

func (d *Drops) turnOn() *interfaces.PcapTraceOn {
	return &interfaces.PcapTraceOn{CaptureDrop: true, MaxPackets: d.most, MaxBytesPerPacket: mostBytes, Filename: d.names[d.at]}
}

// beginCapture begins a capture. Files of an earlier agent that ended between a capture and its read are removed.
func (d *Drops) beginCapture(ctx context.Context, do Do) error {
	for _, name := range d.names {
		if err := os.Remove(filepath.Join(d.folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("capture of dropped packets: %w", err)
		}
	}
	if err := do(ctx, vpp.Call{Msg: d.turnOn()})[0].Err; err != nil {
		return fmt.Errorf("capture of dropped packets: %w", err)
	}
	return nil
}

// take reads a file and removes it: it has payload.
func (d *Drops) take(name string) ([]Packet, error) {
	path := filepath.Join(d.folder, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("VPP wrote %s to its /tmp, and %s does not have it: the agent must see VPP's /tmp", name, d.folder)
	}
	if err != nil {
		return nil, err
	}
	packets, err := Parse(b)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return packets, errors.Join(err, os.Remove(path))
}

// command runs a command of VPP's command line.
func command(ctx context.Context, do Do, line string) (string, error) {
	r := do(ctx, vpp.Call{Msg: &vlib.CliInband{Cmd: line}})[0]
	m, ok := r.Msg.(*vlib.CliInbandReply)
	if r.Err != nil || !ok {
		return "", fmt.Errorf("vpp command %q: %w", line, r.Err)
	}
	return m.Reply, nil
}

// Needs are the requests of the package.
func Needs() []api.Message {
	return []api.Message{&interfaces.PcapTraceOn{}, &interfaces.PcapTraceOff{}, &vlib.CliInband{}}
}

// parseCount reads digits that a regular expression found.
func parseCount(digits string) uint64 {
	n, _ := strconv.ParseUint(digits, 10, 64) // too many digits: 2^64-1
	return n
}
