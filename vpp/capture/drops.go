// Package capture turns VPP's capture of packets, and its table of access-list sessions, into packets, files and sessions.
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
	"sync"

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

// ErrLent means that a capture of an interface has taken the place of the capture of dropped packets.
var ErrLent = errors.New("contiv-agent capture captures packets of a pod: dropped packets are not shown until that capture ends")

// Drops is a capture of dropped packets (pcap_trace_on, VPP 24.06 to 26.06). VPP writes a capture to a file in its /tmp when it ends.
type Drops struct {
	folder string // VPP's /tmp, as this process sees it
	names  [2]string
	other  string // the file of an Interface that shares the capture
	most   uint32

	mu   sync.Mutex
	at   int
	lent bool
	kept Captured // read when the capture was lent
}

// NewDrops returns a capture that keeps at most that many packets between two reads. The name must differ from those of other agents
// with the same /tmp, and stay the same after a restart.
func NewDrops(folder, name string, most uint32) *Drops {
	return &Drops{folder: folder, names: [2]string{"contiv-flows-" + name + "-0.pcap", "contiv-flows-" + name + "-1.pcap"}, other: interfaceFile(name), most: most}
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
// While the capture is lent, the error is ErrLent.
func (d *Drops) Read(ctx context.Context, do Do) (c Captured, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err = ErrLent; !d.lent {
		c, err = d.readNow(ctx, do)
	}
	c.Packets, c.Full = append(d.kept.Packets, c.Packets...), c.Full || d.kept.Full
	d.kept = Captured{}
	return c, err
}

func (d *Drops) readNow(ctx context.Context, do Do) (Captured, error) {
	on, err := statusOf(ctx, do)
	switch {
	case err != nil:
		return Captured{}, err
	case on.name == "":
		return Captured{}, d.beginCapture(ctx, do)
	case on.name == d.other: // of an agent that ended before its capture
		return Captured{}, errors.Join(endAt(ctx, do, d.folder, d.other), d.beginCapture(ctx, do))
	case on.name != d.names[0] && on.name != d.names[1]:
		return Captured{}, fmt.Errorf("%w: %s", ErrForeign, on.name)
	case on.packets == 0:
		return Captured{}, nil
	}
	if d.at = 0; on.name == d.names[0] {
		d.at = 1
	}
	r := do(ctx, vpp.Call{Msg: &interfaces.PcapTraceOff{}, Joined: true, AtOnce: true}, vpp.Call{Msg: d.turnOn()})
	if err := errors.Join(r[0].Err, r[1].Err); err != nil {
		return Captured{}, fmt.Errorf("capture of dropped packets: %w", err)
	}
	packets, err := d.take(on.name)
	return Captured{packets, on.packets == on.most}, err
}

// lend ends the capture and keeps its packets for the next Read. The capture is lent until back is called. A nil Drops has nothing to lend.
func (d *Drops) lend(ctx context.Context, do Do) (back func(), err error) {
	if d == nil {
		return func() {}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	on, err := statusOf(ctx, do)
	if err != nil {
		return nil, err
	}
	if on.name == d.names[0] || on.name == d.names[1] {
		if err := stopCapture(ctx, do); err != nil {
			return nil, err
		}
	}
	if (on.name == d.names[0] || on.name == d.names[1]) && on.packets > 0 {
		packets, err := d.take(on.name)
		if err != nil {
			return nil, err
		}
		d.kept = Captured{append(d.kept.Packets, packets...), d.kept.Full || on.packets == on.most}
	}
	d.lent = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lent = false
	}, nil
}

func (d *Drops) turnOn() *interfaces.PcapTraceOn {
	return &interfaces.PcapTraceOn{CaptureDrop: true, MaxPackets: d.most, MaxBytesPerPacket: mostBytes, Filename: d.names[d.at]}
}

// beginCapture begins a capture. Files of an earlier agent that ended between a capture and its read are removed.
func (d *Drops) beginCapture(ctx context.Context, do Do) error {
	for _, name := range d.names {
		if err := removeFile(d.folder, name); err != nil {
			return err
		}
	}
	if err := do(ctx, vpp.Call{Msg: d.turnOn()})[0].Err; err != nil {
		return fmt.Errorf("capture of dropped packets: %w", err)
	}
	return nil
}

// state is the running capture; its zero value: none runs.
type state struct {
	name          string // of the file
	packets, most uint64
}

func statusOf(ctx context.Context, do Do) (state, error) {
	text, err := command(ctx, do, status)
	if on := running.FindStringSubmatch(text); on != nil {
		return state{filepath.Base(on[3]), parseCount(on[1]), parseCount(on[2])}, err
	}
	return state{}, err
}

// stopCapture ends the running capture. VPP answers that it has no entry if the capture has no packet, and writes no file.
func stopCapture(ctx context.Context, do Do) error {
	if err := do(ctx, vpp.Call{Msg: &interfaces.PcapTraceOff{}})[0].Err; err != nil && !errors.Is(err, api.NO_SUCH_ENTRY) {
		return fmt.Errorf("end of a capture: %w", err)
	}
	return nil
}

// endAt ends the running capture, and removes its file.
func endAt(ctx context.Context, do Do, folder, name string) error {
	return errors.Join(stopCapture(ctx, do), removeFile(folder, name))
}

func removeFile(folder, name string) error {
	if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("file of a capture: %w", err)
	}
	return nil
}

// errNoFile says that VPP wrote a file that this process does not see.
func errNoFile(name, folder string) error {
	return fmt.Errorf("VPP wrote %s to its /tmp, and %s does not have it: the agent must see VPP's /tmp", name, folder)
}

// take reads a file and removes it: it has payload.
func (d *Drops) take(name string) ([]Packet, error) {
	path := filepath.Join(d.folder, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoFile(name, d.folder)
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
