package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Limits bound a capture of an interface. It ends when the first of them is reached.
type Limits struct {
	Packets uint32
	Bytes   uint32 // kept of each packet
	Time    time.Duration
}

// Bounds of limits.
const (
	leastBytes, mostOfPacket = 32, 9000 // of a packet (pcap_trace_on, VPP 24.06 to 26.06)
	mostPackets              = 100_000
	mostTime                 = 10 * time.Minute
	// mostMemory bounds the memory of VPP, which holds a capture until its end.
	mostMemory = 32 << 20
)

// Validate returns what is wrong with the limits.
func (l Limits) Validate() error {
	switch {
	case l.Packets < 1 || l.Packets > mostPackets:
		return fmt.Errorf("%d packets: must be 1 to %d", l.Packets, mostPackets)
	case l.Bytes < leastBytes || l.Bytes > mostOfPacket:
		return fmt.Errorf("%d bytes of a packet: must be %d to %d", l.Bytes, leastBytes, mostOfPacket)
	case l.Time <= 0 || l.Time > mostTime:
		return fmt.Errorf("%s: must be more than 0, and at most %s", l.Time, mostTime)
	case l.memory() > mostMemory:
		return fmt.Errorf("%d packets with %d bytes: VPP would need %d bytes of memory, more than %d: capture fewer packets, or fewer bytes of each", l.Packets, l.Bytes, l.memory(), mostMemory)
	}
	return nil
}

// memory is the size of the largest file.
func (l Limits) memory() uint64 {
	return fileHeader + uint64(l.Packets)*(recordHeader+uint64(l.Bytes))
}

// Interface captures what one interface receives and sends. It shares VPP's one capture with a Drops. It is safe for concurrent use.
type Interface struct {
	folder, file string
	drops        *Drops // nil: dropped packets are not captured
	busy         sync.Mutex
}

// NewInterface returns a capture with the folder and the name of its Drops. These follow the same rules as those of NewDrops.
func NewInterface(folder, name string, drops *Drops) *Interface {
	return &Interface{folder: folder, file: interfaceFile(name), drops: drops}
}

func interfaceFile(name string) string { return "contiv-capture-" + name + ".pcap" }

// ErrBusy means that the agent captures already.
var ErrBusy = errors.New("this agent captures packets of a pod already: VPP has one capture at a time")

const (
	// lookEvery is how often a capture compares the number of packets with the limit. Each time VPP executes a command.
	lookEvery = 250 * time.Millisecond
	// endLimit bounds the end of a capture, also of one that nobody waits for.
	endLimit = 5 * time.Second
)

// Capture returns a pcap file with the packets that an interface receives and sends. It ends at a limit, or when stop is closed. It also ends when ctx
// ends; then the packets are removed, and the error is that of ctx. A capture of another program is left alone, with ErrForeign.
func (i *Interface) Capture(ctx context.Context, do Do, index uint32, l Limits, stop <-chan struct{}) (file []byte, err error) {
	if index == 0 {
		return nil, errors.New("interface 0: VPP would capture the packets of all interfaces")
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if !i.busy.TryLock() {
		return nil, ErrBusy
	}
	defer i.busy.Unlock()
	back, err := i.drops.lend(ctx, do)
	if err != nil {
		return nil, err
	}
	defer back()
	if err := i.startCapture(ctx, do, index, l); err != nil {
		return nil, err
	}
	whole, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	failed := i.awaitEnd(whole, do, stop)
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancelLast()
	file, err = i.endCapture(last, do, l)
	if failed = errors.Join(ctx.Err(), failed); failed != nil {
		return nil, failed
	}
	return file, err
}

// startCapture begins the capture. It ends one that an earlier agent left.
func (i *Interface) startCapture(ctx context.Context, do Do, index uint32, l Limits) error {
	on, err := statusOf(ctx, do)
	if err != nil {
		return err
	}
	if on.name == i.file {
		err = stopCapture(ctx, do)
	} else if on.name != "" {
		err = fmt.Errorf("%w: %s", ErrForeign, on.name)
	}
	if err != nil {
		return err
	}
	if err := removeFile(i.folder, i.file); err != nil {
		return err
	}
	trace := &interfaces.PcapTraceOn{
		CaptureRx: true, CaptureTx: true, SwIfIndex: interface_types.InterfaceIndex(index),
		MaxPackets: l.Packets, MaxBytesPerPacket: l.Bytes, Filename: i.file,
	}
	if err := do(ctx, vpp.Call{Msg: trace})[0].Err; err != nil {
		return fmt.Errorf("capture of an interface: %w", err)
	}
	return nil
}

// awaitEnd returns when the capture is full, has ended, or must end. The error is that of VPP.
func (i *Interface) awaitEnd(ctx context.Context, do Do, stop <-chan struct{}) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case <-look.C:
		}
		on, err := statusOf(ctx, do)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case on.name != i.file || on.packets == on.most:
			return nil
		}
	}
}

// endCapture ends the capture, and returns its file. Another program may have ended it: VPP has written the file then.
func (i *Interface) endCapture(ctx context.Context, do Do, l Limits) (file []byte, err error) {
	on, err := statusOf(ctx, do)
	if err != nil {
		return nil, err
	}
	if on.name == i.file {
		if err := stopCapture(ctx, do); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(filepath.Join(i.folder, i.file))
	switch {
	case errors.Is(err, os.ErrNotExist) && on.name == i.file && on.packets > 0:
		return nil, errNoFile(i.file, i.folder)
	case errors.Is(err, os.ErrNotExist) && on.name == i.file:
		return emptyFile(), nil
	case errors.Is(err, os.ErrNotExist):
		return nil, errors.New("another program has ended the capture")
	case err != nil:
		return nil, err
	}
	file, err = io.ReadAll(io.LimitReader(f, int64(mostMemory)+1))
	if err == nil && uint64(len(file)) > l.memory() {
		err = fmt.Errorf("%s: %w: larger than the capture", i.file, ErrFile)
	}
	return file, errors.Join(err, f.Close(), removeFile(i.folder, i.file))
}

// emptyFile is a pcap file of Ethernet frames without packets. VPP writes none.
func emptyFile() []byte {
	var out []byte
	for _, v := range []uint32{magic, 4<<16 | 2, 0, 0, 1 << 16, 1} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

// Count returns how many packets a pcap file of VPP has.
func Count(file []byte) (n int, err error) {
	err = eachFrame(file, func([]byte) { n++ })
	return n, err
}

// ErrNoRoute means that VPP has no route to an address alone.
var ErrNoRoute = errors.New("VPP has no route to it alone, so no interface")

// InterfaceOf returns the index of the interface by which VPP reaches an address of a pod: that of its route to the address alone.
func InterfaceOf(ctx context.Context, do Do, a netip.Addr) (uint32, error) {
	to := ip_types.Prefix{Len: uint8(a.BitLen()), Address: ip_types.NewAddress(a.AsSlice())}
	r := do(ctx, vpp.Call{Msg: &ip.IPRouteLookup{Exact: 1, Prefix: to}})[0]
	_, refused := errors.AsType[*vpp.Retval](r.Err)
	found, ok := r.Msg.(*ip.IPRouteLookupReply)
	switch {
	case refused:
		return 0, fmt.Errorf("%s: %w", a, ErrNoRoute)
	case r.Err != nil:
		return 0, r.Err
	case !ok || len(found.Route.Paths) != 1 || found.Route.Paths[0].SwIfIndex == 0 || found.Route.Paths[0].SwIfIndex == ^uint32(0):
		return 0, fmt.Errorf("%s: %w", a, ErrNoRoute)
	}
	return found.Route.Paths[0].SwIfIndex, nil
}
