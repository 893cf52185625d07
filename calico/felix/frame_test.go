package felix

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// frames encodes messages one after the other.
func frames(t testing.TB, messages ...proto.Message) []byte {
	t.Helper()
	var b []byte
	for _, m := range messages {
		var err error
		if b, err = AppendFrame(b, m); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func inSync(seq uint64) *pb.ToDataplane {
	return &pb.ToDataplane{SequenceNumber: seq, Payload: &pb.ToDataplane_InSync{InSync: &pb.InSync{}}}
}

// The length excludes the header, and is eight little-endian bytes.
func TestFrameBytes(t *testing.T) {
	long := &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetRemove{IpsetRemove: &pb.IPSetRemove{Id: strings.Repeat("x", 300)}}}
	got := frames(t, inSync(0), long)
	want := append([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0x32, 1, 0, 0, 0, 0, 0, 0, 0x22, 0xaf, 0x02, 0x0a, 0xac, 0x02}, strings.Repeat("x", 300)...)
	if !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
}

func TestReadWhatWasWritten(t *testing.T) {
	set := &pb.IPSetUpdate{Id: "s:large"}
	for range 20_000 {
		set.Members = append(set.Members, "10.65.1.7/32")
	}
	messages := []proto.Message{
		&pb.ToDataplane{}, inSync(1), // an empty frame is a message
		&pb.ToDataplane{SequenceNumber: 2, Payload: &pb.ToDataplane_IpsetUpdate{IpsetUpdate: set}},
		inSync(3),
	}
	for _, slow := range []bool{false, true} {
		var pipe bytes.Buffer
		w := NewWriter(&pipe)
		for _, m := range messages {
			if err := w.Write(m); err != nil {
				t.Fatal(err)
			}
		}
		var in io.Reader = &pipe
		if slow {
			in = iotest.HalfReader(in)
		}
		r := NewReader(in, 0)
		for i, want := range messages {
			got := &pb.ToDataplane{SequenceNumber: 99}
			if err := r.Read(got); err != nil || !proto.Equal(got, want) {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		if err := r.Read(&pb.ToDataplane{}); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	}
}

func TestBrokenFrames(t *testing.T) {
	good := frames(t, inSync(0))
	header := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for _, c := range []struct {
		name  string
		bytes []byte
		err   error
		text  string
	}{
		{"in the length", good[:3], ErrTruncated, "frame 0 at byte 0, length 0: the stream ends within a frame, after 3 of 8 bytes"},
		{"in the message", append(bytes.Clone(good), good[:9]...), ErrTruncated, "frame 1 at byte 10, length 2: the stream ends within a frame, after 1 of 2 bytes"},
		{"after the length", header(7), ErrTruncated, "frame 0 at byte 0, length 7: the stream ends within a frame, after 0 of 7 bytes"},
		{"one too long", header(1025), ErrOversized, "frame 0 at byte 0, length 1025: the frame is longer than the limit of 1024 bytes"},
		{"negative", header(1 << 63), ErrOversized, "frame 0 at byte 0, length 9223372036854775808: the frame is longer than the limit of 1024 bytes"},
		{"garbage", append(header(3), 0xff, 0xff, 0xff), ErrGarbage, "frame 0 at byte 0, length 3: the frame does not hold the message felix.ToDataplane: "},
	} {
		r := NewReader(bytes.NewReader(c.bytes), 1024)
		var err error
		for err == nil {
			err = r.Read(&pb.ToDataplane{})
		}
		var frame *FrameError
		if !errors.Is(err, c.err) || !errors.As(err, &frame) || !strings.HasPrefix(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	r := NewReader(bytes.NewReader(append(header(3), append([]byte{0xff, 0xff, 0xff}, good...)...)), 0)
	if err := r.Read(&pb.ToDataplane{}); !errors.Is(err, ErrGarbage) {
		t.Errorf("garbage: %v", err)
	}
	if err := r.Read(&pb.ToDataplane{}); err != nil {
		t.Errorf("after garbage: %v", err)
	}
}

func TestPipeError(t *testing.T) {
	broken := errors.New("broken")
	if err := NewReader(iotest.ErrReader(broken), 0).Read(&pb.ToDataplane{}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := NewWriter(failing{broken}).Write(inSync(0)); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A length greater than the bytes that follow must not allocate that length.
func TestFalseLengthAllocatesLittle(t *testing.T) {
	lie := append(binary.LittleEndian.AppendUint64(nil, DefaultLimit), make([]byte, 1000)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := NewReader(bytes.NewReader(lie), 0).Next()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("%d bytes for a frame of which 1000 came", took)
	}
}

// FuzzReader reads arbitrary bytes; a readable message is equal after writing and reading it again.
func FuzzReader(f *testing.F) {
	f.Add([]byte{})
	f.Add(frames(f, inSync(0), inSync(1)))
	f.Add(frames(f, &pb.ToDataplane{Payload: &pb.ToDataplane_ConfigUpdate{ConfigUpdate: &pb.ConfigUpdate{Config: map[string]string{"a": "b"}}}}))
	f.Add(append(frames(f, inSync(0)), 1, 2, 3))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), 1<<16)
		for {
			m := &pb.ToDataplane{}
			err := r.Read(m)
			if errors.Is(err, ErrGarbage) {
				continue
			}
			if err != nil {
				if err != io.EOF && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrOversized) {
					t.Fatal(err)
				}
				return
			}
			again := &pb.ToDataplane{}
			if err := NewReader(bytes.NewReader(frames(t, m)), 0).Read(again); err != nil || !proto.Equal(m, again) {
				t.Fatalf("%v is read as %v: %v", m, again, err)
			}
		}
	})
}
