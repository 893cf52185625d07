// Package stats reads counters from VPP's stats segment: memory that VPP shares with every client of a separate socket.
//
//	socket ──▶ file of the segment ──▶ directory of names ──▶ counters of ACL rules, number of NAT44 sessions
//
// Invariant: VPP's main thread only accepts the connection; reading costs VPP nothing, and a damaged segment is an error.
package stats

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Reader reads counters from VPP's stats segment. It keeps nothing open between two reads, so a restart of VPP does not matter.
//
// It reads the memory through its file instead of mapping it: if VPP ends or the segment is damaged, it returns an error
// and does not crash.
type Reader struct {
	Socket string // statseg's socket-name: "/run/vpp/stats.sock"
}

// Counter is a number of packets and bytes.
type Counter struct {
	Packets uint64
	Bytes   uint64 // bytes of the packet at that point: of the IP packet at input, with its Ethernet header at output
}

// ErrBusy means that the segment changed during every attempt to read it.
var ErrBusy = errors.New("the stats segment keeps changing")

const (
	patience = time.Second // limit for connecting, and for a segment that keeps changing
	pause    = time.Millisecond
)

// ACLMatches returns how many packets each rule of the given ACLs matched since acl_add_replace last wrote the ACL, by
// acl_index: one counter per rule, perhaps followed by zeros. Packets of established flows match no rule. The counters are
// /acl/<index>/matches, which VPP maintains after acl_stats_intf_counters_enable (acl.c, VPP 24.06 to 25.10). An ACL
// without counters in VPP is missing from the result.
func (r Reader) ACLMatches(ctx context.Context, acls []uint32) (map[uint32][]Counter, error) {
	names := make(map[string]uint32, len(acls))
	for _, index := range acls {
		names[fmt.Sprintf("/acl/%d/matches", index)] = index
	}
	out := make(map[uint32][]Counter, len(acls))
	err := r.readSegment(ctx, func(g *segment, directory []byte) error {
		clear(out)
		for ; len(directory) >= entrySize; directory = directory[entrySize:] {
			index, asked := names[cString(directory[entryName:entrySize])]
			if !asked || order.Uint32(directory) != entryCombined {
				continue
			}
			counters, err := g.combined(order.Uint64(directory[entryData:]))
			if err != nil {
				return err
			}
			if counters != nil {
				out[index] = counters
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ErrNotCounted means that the segment lacks the counter.
var ErrNotCounted = errors.New("VPP has no such counter")

// NAT44Sessions returns the number of NAT44-ED sessions of all threads: /nat44-ed/total-sessions, which VPP sets with each
// session that begins or ends (nat44_ed.c, VPP 24.06 to 26.06). Reading it costs VPP's threads nothing.
func (r Reader) NAT44Sessions(ctx context.Context) (uint64, error) {
	var sum uint64
	found := false
	err := r.readSegment(ctx, func(g *segment, directory []byte) (err error) {
		found = false
		for ; len(directory) >= entrySize && !found; directory = directory[entrySize:] {
			if order.Uint32(directory) == entrySimple && cString(directory[entryName:entrySize]) == "/nat44-ed/total-sessions" {
				found = true
				sum, err = g.simple(order.Uint64(directory[entryData:]))
			}
		}
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("stats segment: /nat44-ed/total-sessions: %w", ErrNotCounted)
	}
	return sum, err
}

// readSegment calls f with the directory of the segment, within patience.
func (r Reader) readSegment(ctx context.Context, f func(*segment, []byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	file, err := r.open(ctx)
	if err != nil {
		return fmt.Errorf("stats segment: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil {
		err = (&segment{file: file, size: uint64(info.Size())}).readDirectory(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("stats segment: %w", err)
	}
	return nil
}

// open receives the segment's file from VPP.
func (r Reader) open(ctx context.Context) (*os.File, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", r.Socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })() // harmless after Close
	rights := make([]byte, syscall.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), rights)
	if n == 0 { // a message with rights but without bytes looks like an end
		return nil, errors.Join(fmt.Errorf("%s: no file came", r.Socket), err)
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Socket, err)
	}
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			return os.NewFile(uintptr(fds[0]), r.Socket), nil
		}
	}
	return nil, fmt.Errorf("%s: no file came", r.Socket)
}

// The layout of the segment (src/vlib/stats/shared.h, VPP 24.06 to 25.10), on little-endian machines.
const (
	segmentVersion = 2
	headerVersion  = 0
	headerBase     = 8  // VPP's address of the segment: pointers are relative to it
	headerEpoch    = 16 // counts changes
	headerChanging = 24
	headerEntries  = 32 // pointer to the vector of entries
	headerSize     = 40

	entryData     = 8 // after the type
	entryName     = 16
	entrySize     = entryName + 128
	entrySimple   = 2 // a vector per thread of counters
	entryCombined = 3 // a vector per thread of pairs of packets and bytes

	vectorLen = 8 // before a vector: its length, a u32
)

var order = binary.LittleEndian // read only

// segment is a stats segment.
type segment struct {
	file io.ReaderAt
	size uint64
	base uint64
}

// readDirectory calls f with the directory, and again if the segment changed meanwhile.
func (g *segment) readDirectory(ctx context.Context, f func(*segment, []byte) error) error {
	for {
		before, err := g.header()
		if err != nil {
			return err
		}
		if order.Uint64(before[headerChanging:]) == 0 {
			err := g.once(before, f)
			after, again := g.header()
			if again != nil {
				return again
			}
			if [headerSize]byte(before) == [headerSize]byte(after) {
				return err
			}
		}
		pause := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(ErrBusy, ctx.Err())
		case <-pause.C:
		}
	}
}

func (g *segment) header() ([]byte, error) {
	h, err := g.bytes(0, headerSize)
	if err != nil {
		return nil, err
	}
	if v := order.Uint64(h[headerVersion:]); v != segmentVersion {
		return nil, fmt.Errorf("layout %d is not known, only %d", v, segmentVersion)
	}
	return h, nil
}

func (g *segment) once(header []byte, f func(*segment, []byte) error) error {
	g.base = order.Uint64(header[headerBase:])
	directory, err := g.vector(order.Uint64(header[headerEntries:]), entrySize)
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	return f(g, directory)
}

// combined adds up the pairs of all threads; nil: none.
func (g *segment) combined(pointer uint64) ([]Counter, error) {
	threads, err := g.vector(pointer, 8)
	if err != nil {
		return nil, err
	}
	var sum []Counter
	for ; len(threads) > 0; threads = threads[8:] {
		pairs, err := g.vector(order.Uint64(threads), 16)
		if err != nil {
			return nil, err
		}
		for i := 0; len(pairs) > 0; i, pairs = i+1, pairs[16:] {
			if i == len(sum) {
				sum = append(sum, Counter{})
			}
			sum[i].Packets += order.Uint64(pairs)
			sum[i].Bytes += order.Uint64(pairs[8:])
		}
	}
	return sum, nil
}

// simple adds up the first counter of all threads.
func (g *segment) simple(pointer uint64) (sum uint64, err error) {
	threads, err := g.vector(pointer, 8)
	for ; err == nil && len(threads) > 0; threads = threads[8:] {
		var counters []byte
		if counters, err = g.vector(order.Uint64(threads), 8); len(counters) > 0 {
			sum += order.Uint64(counters)
		}
	}
	return sum, err
}

// vector returns the bytes of a VPP vector with elements of size bytes; nil: the pointer is 0.
func (g *segment) vector(pointer, size uint64) ([]byte, error) {
	if pointer == 0 {
		return nil, nil
	}
	at := pointer - g.base // below the base it wraps to beyond the end
	if at < vectorLen {
		return nil, fmt.Errorf("a vector at %d", at)
	}
	length, err := g.bytes(at-vectorLen, 4)
	if err != nil {
		return nil, err
	}
	return g.bytes(at, uint64(order.Uint32(length))*size)
}

func (g *segment) bytes(at, n uint64) ([]byte, error) {
	if at > g.size || n > g.size-at {
		return nil, fmt.Errorf("%d bytes at %d of %d", n, at, g.size)
	}
	b := make([]byte, n)
	if _, err := g.file.ReadAt(b, int64(at)); err != nil {
		return nil, err
	}
	return b, nil
}

// cString returns the bytes before the first 0.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
