package stats

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// image builds a stats segment in VPP's layout, at some base address.
type image struct {
	b    []byte
	base uint64
}

// vector appends a vector and returns its pointer.
func (m *image) vector(elements int, b []byte) uint64 {
	for len(m.b)%16 != 0 {
		m.b = append(m.b, 0xAA)
	}
	m.b = order.AppendUint32(m.b, uint32(elements))
	m.b = append(m.b, 8, 0, 0, 0)
	at := uint64(len(m.b))
	m.b = append(m.b, b...)
	return m.base + at
}

// counters appends the vector of threads of a combined counter.
func (m *image) counters(threads ...[]Counter) uint64 {
	var pointers []byte
	for _, counters := range threads {
		var pairs []byte
		for _, c := range counters {
			pairs = order.AppendUint64(order.AppendUint64(pairs, c.Packets), c.Bytes)
		}
		pointers = order.AppendUint64(pointers, m.vector(len(counters), pairs))
	}
	return m.vector(len(threads), pointers)
}

type entry struct {
	kind uint32
	data uint64
	name string
}

func newImage() *image { return &image{b: make([]byte, 4096), base: 0x130044000} }

func (m *image) finish(entries ...entry) []byte {
	var directory []byte
	for _, e := range entries {
		d := make([]byte, entrySize)
		order.PutUint32(d, e.kind)
		order.PutUint64(d[entryData:], e.data)
		copy(d[entryName:], e.name)
		directory = append(directory, d...)
	}
	order.PutUint64(m.b[headerEntries:], m.vector(len(entries), directory))
	order.PutUint64(m.b[headerVersion:], segmentVersion)
	order.PutUint64(m.b[headerBase:], m.base)
	order.PutUint64(m.b[headerEpoch:], 7)
	return m.b
}

// segmentOfACLs has counters of ACL 3 (two threads) and of ACL 30, and an empty one of ACL 5.
func segmentOfACLs() []byte {
	m := newImage()
	three := m.counters([]Counter{{1, 100}, {2, 200}, {}}, []Counter{{10, 1000}, {}, {}, {}})
	thirty := m.counters([]Counter{{4, 4}})
	return m.finish(
		entry{1, 42, "/sys/vector_rate"}, entry{2, three, "/acl/4/matches"}, entry{entryCombined, three, "/acl/3/matches"},
		entry{entryCombined, thirty, "/acl/30/matches"}, entry{entryCombined, 0, "/acl/5/matches"}, entry{6, 1 << 33, "/err/x"},
	)
}

// serveSegment is VPP's side of the socket; it answers every client with a file of that content.
func serveSegment(t *testing.T, content []byte) (socket string, file *os.File) {
	t.Helper()
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "segment"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "stats.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			_, _, _ = c.WriteMsgUnix(nil, syscall.UnixRights(int(file.Fd())), nil) // the client may have left
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done; _ = file.Close() })
	return socket, file
}

func TestACLMatches(t *testing.T) {
	socket, _ := serveSegment(t, segmentOfACLs())
	for range 2 { // nothing stays open in between
		got, err := Reader{Socket: socket}.ACLMatches(t.Context(), []uint32{3, 4, 5, 6, 30})
		if err != nil {
			t.Fatal(err)
		}
		want := map[uint32][]Counter{3: {{11, 1100}, {2, 200}, {}, {}}, 30: {{4, 4}}} // 4 is another type of counter
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// counts appends the vector of threads of a simple counter.
func (m *image) counts(threads ...[]uint64) uint64 {
	var pointers []byte
	for _, counts := range threads {
		var b []byte
		for _, n := range counts {
			b = order.AppendUint64(b, n)
		}
		pointers = order.AppendUint64(pointers, m.vector(len(counts), b))
	}
	return m.vector(len(threads), pointers)
}

func TestNAT44Sessions(t *testing.T) {
	const name = "/nat44-ed/total-sessions"
	m := newImage()
	sessions, other := m.counts([]uint64{3}, []uint64{40, 9}, nil), m.counts([]uint64{1})
	socket, _ := serveSegment(t, m.finish(entry{entrySimple, other, name + "-of-others"}, entry{entryCombined, other, name}, entry{entrySimple, sessions, name}))
	if n, err := (Reader{Socket: socket}).NAT44Sessions(t.Context()); n != 43 || err != nil {
		t.Errorf("%d, %v; want the sum over threads, 43", n, err)
	}
	m = newImage()
	socket, _ = serveSegment(t, m.finish(entry{entryCombined, m.counts(), name}))
	if _, err := (Reader{Socket: socket}).NAT44Sessions(t.Context()); !errors.Is(err, ErrNotCounted) {
		t.Errorf("no NAT plugin: %v", err)
	}
	m = newImage()
	socket, _ = serveSegment(t, m.finish(entry{entrySimple, 1 << 50, name}))
	if _, err := (Reader{Socket: socket}).NAT44Sessions(t.Context()); err == nil {
		t.Error("a pointer out of the segment is no error")
	}
}

func TestNoStats(t *testing.T) {
	_, err := Reader{Socket: filepath.Join(t.TempDir(), "none")}.ACLMatches(t.Context(), []uint32{1})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no socket: %v", err)
	}
	for what, damage := range map[string]func(b []byte) []byte{
		"layout 1 is not known": func(b []byte) []byte { order.PutUint64(b[headerVersion:], 1); return b },
		"directory: ":           func(b []byte) []byte { order.PutUint64(b[headerEntries:], 1<<40); return b },
		" bytes at ":            func(b []byte) []byte { return b[:20] },
		"keeps changing":        func(b []byte) []byte { b[headerChanging] = 1; return b },
	} {
		socket, _ := serveSegment(t, damage(segmentOfACLs()))
		if _, err := (Reader{Socket: socket}).ACLMatches(t.Context(), []uint32{3}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
}

// changing is a segment that VPP changes during the first read.
type changing struct {
	b     []byte
	reads int
}

func (c *changing) ReadAt(p []byte, at int64) (int, error) {
	switch c.reads++; c.reads {
	case 2: // the directory's length: the directory moved, and other bytes are in its place
		order.PutUint64(c.b[headerEpoch:], 8)
		order.PutUint32(c.b[order.Uint64(c.b[headerEntries:])-order.Uint64(c.b[headerBase:])-vectorLen:], 1)
	case 5:
		copy(c.b, segmentOfACLs())
	}
	return bytes.NewReader(c.b).ReadAt(p, at)
}

// A read during which VPP changed the segment does not count, whatever it returned.
func TestReadAgainAfterAChange(t *testing.T) {
	b := segmentOfACLs()
	c := &changing{b: b}
	g := &segment{file: c, size: uint64(len(b))}
	var lengths []int
	err := g.readDirectory(t.Context(), func(g *segment, directory []byte) error {
		lengths = append(lengths, len(directory)/entrySize)
		return nil
	})
	if diff := cmp.Diff([]int{1, 6}, lengths); diff != "" || err != nil {
		t.Errorf("entries seen (-want +got):\n%s%v", diff, err)
	}
}

func TestStatsEndWithTheirContext(t *testing.T) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"}) // never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Reader{Socket: l.Addr().String()}).ACLMatches(ctx, nil); err == nil {
		t.Error("no error")
	}
}

// FuzzSegment: no content of the segment makes the reader panic or read beyond the file; it returns errors.
func FuzzSegment(f *testing.F) {
	f.Add(segmentOfACLs())
	f.Fuzz(func(t *testing.T, b []byte) {
		g := &segment{file: bytes.NewReader(b), size: uint64(len(b))}
		h, err := g.header()
		if err != nil {
			return
		}
		_ = g.once(h, func(g *segment, directory []byte) error { // errors are fine
			if len(directory) >= entrySize {
				_, _ = g.combined(order.Uint64(directory[entryData:]))
			}
			return nil
		})
	})
}
