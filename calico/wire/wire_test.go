package wire

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Types of a peer that uses encoding/gob, registered under the frozen names.
type (
	gobEnvelope    struct{ Message any }
	gobClientHello struct {
		Hostname, Info, Version        string
		SyncerType                     SyncerType
		SupportsDecoderRestart         bool
		SupportedCompressionAlgorithms []string
		ClientConnID                   uint64
		SupportsModernPolicyKeys       bool
	}
	gobServerHello struct {
		Version                     string
		SyncerType                  SyncerType
		SupportsNodeResourceUpdates bool
		ServerConnID                uint64
	}
	gobDecoderRestart struct{ Message, CompressionAlgorithm string }
	gobACK            struct{}
	gobSyncStatus     struct{ SyncStatus uint8 }
	gobPing           struct{ Timestamp time.Time }
	gobPong           struct{ PingTimestamp, PongTimestamp time.Time }
	gobKVs            struct{ KVs []gobKV }
	gobKV             struct {
		Key               string
		Value             []byte
		Revision          any
		V3ResourceVersion string
		TTL               time.Duration
		UpdateType        uint8
	}
)

func TestMain(m *testing.M) {
	for name, v := range map[string]any{
		"MsgClientHello": gobClientHello{}, "MsgServerHello": gobServerHello{}, "MsgDecoderRestart": gobDecoderRestart{},
		"MsgACK": gobACK{}, "MsgSyncStatus": gobSyncStatus{}, "MsgPing": gobPing{}, "MsgPong": gobPong{}, "MsgKVs": gobKVs{},
	} {
		gob.RegisterName("github.com/projectcalico/typha/pkg/syncproto."+name, v)
	}
	m.Run()
}

// toGob returns the peer's form of a message.
func toGob(m Message) any {
	switch m := m.(type) {
	case ClientHello:
		return gobClientHello(m)
	case ServerHello:
		return gobServerHello(m)
	case DecoderRestart:
		return gobDecoderRestart(m)
	case SyncStatus:
		return gobSyncStatus{uint8(m.SyncStatus)}
	case Ping:
		return gobPing(m)
	case Pong:
		return gobPong(m)
	case KVs:
		var out gobKVs
		for _, kv := range m.KVs {
			g := gobKV{kv.Key, kv.Value, nil, kv.V3ResourceVersion, kv.TTL, uint8(kv.UpdateType)}
			if kv.Revision != "" {
				g.Revision = kv.Revision
			}
			out.KVs = append(out.KVs, g)
		}
		return out
	}
	return gobACK{}
}

func text() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.StringN(0, 0, 0), rapid.StringN(100, 400, -1))
}

func moment() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "s"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC()
	})
}

func messages() *rapid.Generator[Message] {
	kv := rapid.Custom(func(t *rapid.T) KV {
		kv := KV{
			Key: text().Draw(t, "key"), Value: []byte(text().Draw(t, "value")), Revision: text().Draw(t, "rev"),
			V3ResourceVersion: text().Draw(t, "v3"), TTL: time.Duration(rapid.Int64().Draw(t, "ttl")),
			UpdateType: UpdateType(rapid.Uint8Range(0, 3).Draw(t, "type")),
		}
		if len(kv.Value) == 0 {
			kv.Value = nil
		}
		return kv
	})
	return rapid.Custom(func(t *rapid.T) Message {
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case int(kindClientHello):
			return ClientHello{
				text().Draw(t, "host"), text().Draw(t, "info"), text().Draw(t, "version"), SyncerType(text().Draw(t, "syncer")),
				rapid.Bool().Draw(t, "restart"), rapid.SliceOfN(text(), 0, 4).Draw(t, "algorithms"), rapid.Uint64().Draw(t, "id"),
				rapid.Bool().Draw(t, "modern"),
			}
		case int(kindServerHello):
			return ServerHello{text().Draw(t, "version"), Felix, rapid.Bool().Draw(t, "nodes"), rapid.Uint64().Draw(t, "id")}
		case int(kindDecoderRestart):
			return DecoderRestart{text().Draw(t, "why"), Snappy}
		case int(kindSyncStatus):
			return SyncStatus{Status(rapid.Uint8().Draw(t, "status"))}
		case int(kindPing):
			return Ping{moment().Draw(t, "ping")}
		case int(kindPong):
			return Pong{moment().Draw(t, "ping"), moment().Draw(t, "pong")}
		case int(kindKVs):
			return KVs{rapid.SliceOfN(kv, 0, 20).Draw(t, "kvs")}
		}
		return ACK{}
	})
}

// TestGobReadsWhatWeWrite and its counterpart compare the codec with encoding/gob, in one stream of many messages.
func TestGobReadsWhatWeWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream bytes.Buffer
		enc, dec := NewEncoder(&stream), gob.NewDecoder(&stream)
		for _, m := range rapid.SliceOfN(messages(), 1, 12).Draw(t, "messages") {
			if err := enc.Encode(m); err != nil {
				t.Fatal(err)
			}
			var got gobEnvelope
			if err := dec.Decode(&got); err != nil {
				t.Fatalf("%T: %v", m, err)
			}
			if diff := cmp.Diff(toGob(m), got.Message, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%T (-sent +read):\n%s", m, diff)
			}
		}
	})
}

func TestWeReadWhatGobWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream bytes.Buffer
		enc, dec := gob.NewEncoder(&stream), NewDecoder(&stream, 1<<20)
		for _, m := range rapid.SliceOfN(messages(), 1, 12).Draw(t, "messages") {
			if err := enc.Encode(gobEnvelope{toGob(m)}); err != nil {
				t.Fatal(err)
			}
			got, err := dec.Decode()
			if err != nil {
				t.Fatalf("%T: %v", m, err)
			}
			if diff := cmp.Diff(m, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%T (-sent +read):\n%s", m, diff)
			}
		}
		if _, err := dec.Decode(); err != io.EOF {
			t.Fatalf("after the last message: %v", err)
		}
	})
}

// A peer of a future version sends unknown fields of all shapes.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	type inner struct {
		A map[string][]int
		B *inner
	}
	type ServerHello struct {
		Before     map[string]inner
		Version    string
		Floats     [3]float64
		Complex    complex128
		SyncerType string
		Any        any
		Times      []time.Time
		Unused     map[int]bool
		// SupportsNodeResourceUpdates is missing
		ServerConnID uint64
	}
	type hello struct{ Message any }
	// The registry has the frozen name for another type, so the stream with this one under that name is made by hand.
	gob.RegisterName(frozen+"MsgServerHellX", ServerHello{})
	gob.Register(inner{})
	var stream bytes.Buffer
	err := gob.NewEncoder(&stream).Encode(hello{ServerHello{
		Before:  map[string]inner{"x": {A: map[string][]int{"y": {1, -2}}, B: &inner{A: map[string][]int{"z": nil}}}},
		Version: "v9", Floats: [3]float64{1, 2.5, 0}, Complex: 1 + 2i, SyncerType: "felix", Any: inner{A: map[string][]int{}},
		Times: []time.Time{time.Unix(1, 2)}, Unused: map[int]bool{-4: true}, ServerConnID: 7,
	}})
	if err != nil {
		t.Fatal(err)
	}
	raw := bytes.Replace(stream.Bytes(), []byte("MsgServerHellX"), []byte("MsgServerHello"), 1)
	got, err := NewDecoder(bytes.NewReader(raw), 1<<20).Decode()
	if err != nil {
		t.Fatal(err)
	}
	checkHello(t, got)
}

func checkHello(t *testing.T, got Message) {
	t.Helper()
	if diff := cmp.Diff(Message(ServerHello{Version: "v9", SyncerType: Felix, ServerConnID: 7}), got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestRevisionsOfAllForms(t *testing.T) {
	var stream bytes.Buffer
	var kvs gobKVs
	for _, rev := range []any{nil, "12", int64(-3), 7, uint64(1 << 63), true} {
		kvs.KVs = append(kvs.KVs, gobKV{Key: "/k", Revision: rev})
	}
	if err := gob.NewEncoder(&stream).Encode(gobEnvelope{kvs}); err != nil {
		t.Fatal(err)
	}
	got, err := NewDecoder(&stream, 1<<20).Decode()
	if err != nil {
		t.Fatal(err)
	}
	var revs []string
	for _, kv := range got.(KVs).KVs {
		revs = append(revs, kv.Revision)
	}
	if diff := cmp.Diff([]string{"", "12", "-3", "7", "9223372036854775808", "bool"}, revs); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

// TestPartsMeanTheSameInEveryStream joins the parts as a server does: definitions once, then frames that were encoded and
// compressed elsewhere.
func TestPartsMeanTheSameInEveryStream(t *testing.T) {
	value := []byte(strings.Repeat(`{"labels":{"app":"web"}}`, 300))
	var elements []byte
	for range 100 {
		elements = AppendKV(elements, &KV{Key: "/calico/v1/x", Value: value, Revision: "1", UpdateType: New})
	}
	shared := AppendSnappy(nil, AppendKVs(nil, 200, elements, elements))
	for _, also := range []Message{DecoderRestart{}, Ping{}} {
		defs := AppendDefinitions(nil, KVs{}, also)
		stream := append([]byte(SnappyHeader), AppendSnappy(nil, defs)...)
		stream = append(stream, shared...)
		stream = append(stream, AppendSnappy(nil, AppendMessage(nil, also))...)
		for name, read := range map[string]func(io.Reader) (int, error){"ours": readOurs, "gob": readGob} {
			n, err := read(NewSnappyReader(bytes.NewReader(stream)))
			if err != nil || n != 200 {
				t.Errorf("%s before %T: %d KVs, %v", name, also, n, err)
			}
		}
	}
	if plain := 200 * len(value); len(shared) > plain/10 {
		t.Errorf("%d bytes compressed to %d", plain, len(shared))
	}
}

func readOurs(r io.Reader) (n int, err error) {
	dec := NewDecoder(r, 4<<20)
	for range 2 {
		m, err := dec.Decode()
		if err != nil {
			return n, err
		}
		if kvs, ok := m.(KVs); ok {
			n += len(kvs.KVs)
		}
	}
	return n, nil
}

func readGob(r io.Reader) (n int, err error) {
	dec := gob.NewDecoder(r)
	for range 2 {
		var m gobEnvelope
		if err := dec.Decode(&m); err != nil {
			return n, err
		}
		if kvs, ok := m.Message.(gobKVs); ok {
			n += len(kvs.KVs)
		}
	}
	return n, nil
}

func TestBadInput(t *testing.T) {
	var hello bytes.Buffer
	if err := NewEncoder(&hello).Encode(ClientHello{Hostname: "h", SupportedCompressionAlgorithms: []string{Snappy}}); err != nil {
		t.Fatal(err)
	}
	whole := hello.Bytes()
	beyond := AppendMessage(AppendDefinitions(nil, SyncStatus{}), SyncStatus{InSync})
	beyond[len(beyond)-4] = 7 // the field's number; the message has one field
	element := AppendKV(nil, &KV{Key: "/k"})
	element[0] = 7 // the element has six fields
	many := AppendKVs(nil, 200, element)
	long := AppendKV(nil, &KV{Key: "/k"})
	long[1] = 100 // bytes of the key; it has two
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"a field nobody defined", beyond, ErrMalformed},
		{"a KV's field nobody defined", AppendKVs(AppendDefinitions(nil, KVs{}), 1, element), ErrMalformed},
		{"a key longer than the message", AppendKVs(AppendDefinitions(nil, KVs{}), 1, long), ErrMalformed},
		{"more elements than bytes", append(AppendDefinitions(nil, KVs{}), many...), ErrMalformed},
		{"nothing", nil, io.EOF},
		{"half a message", whole[:len(whole)-5], io.ErrUnexpectedEOF},
		{"half a definition", whole[:20], io.ErrUnexpectedEOF},
		{"definitions alone", AppendDefinitions(nil, Ping{}), io.ErrUnexpectedEOF},
		{"a web browser", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), nil},
		{"a TLS hello", []byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}, nil},
		{"a length beyond the limit", []byte{0xfc, 0x10, 0, 0, 0}, ErrTooLong},
		{"a length of nine bytes", []byte{0xf7, 1, 1, 1, 1, 1, 1, 1, 1, 1}, ErrMalformed},
		{"an empty frame", []byte{0}, ErrMalformed},
		{"a message without definitions", AppendMessage(nil, ACK{}), ErrMalformed},
		{"definitions twice", append(AppendDefinitions(nil), AppendDefinitions(nil)...), ErrMalformed},
	} {
		_, err := NewDecoder(bytes.NewReader(c.in), 1<<16).Decode()
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
}

// A length costs its sender nothing, so it must not cost the receiver memory; nor may endless definitions.
func TestMemoryIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		lie := append([]byte{0xfc, 0x3f, 0, 0, 0}, 1, 2, 3) // announces a gigabyte
		if _, err := NewDecoder(bytes.NewReader(lie), 1<<30).Decode(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
		t.Errorf("100 lies about a length allocated %d MiB", used>>20)
	}
	var flood []byte
	for id := firstID + 1; id < 20000; id++ {
		flood = defineSlice(flood, id, "", idString)
	}
	if _, err := NewDecoder(bytes.NewReader(flood), 1<<20).Decode(); !errors.Is(err, ErrMalformed) {
		t.Errorf("definitions without end: %v", err)
	}
	if _, err := NewDecoder(bytes.NewReader(flood[:32<<10]), 16<<10).Decode(); !errors.Is(err, ErrMalformed) {
		t.Errorf("more definitions than the longest message: %v", err)
	}
}

func FuzzDecoder(f *testing.F) {
	at := time.Unix(1700000000, 5).UTC()
	for _, m := range []Message{
		ClientHello{Hostname: "h", SyncerType: Felix, SupportsDecoderRestart: true, SupportedCompressionAlgorithms: []string{Snappy}},
		ServerHello{Version: "v", SupportsNodeResourceUpdates: true},
		DecoderRestart{"m", Snappy},
		ACK{},
		SyncStatus{InSync},
		Ping{at},
		Pong{at, at},
		KVs{[]KV{{Key: "/k", Value: []byte("v"), Revision: "3", TTL: -1, UpdateType: New}, {Key: "/d"}}},
	} {
		var ours, theirs bytes.Buffer
		_ = NewEncoder(&ours).Encode(m)
		_ = gob.NewEncoder(&theirs).Encode(gobEnvelope{toGob(m)})
		f.Add(ours.Bytes())
		f.Add(theirs.Bytes())
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		dec := NewDecoder(bytes.NewReader(in), 1<<16)
		for {
			m, err := dec.Decode()
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := NewEncoder(&again).Encode(m); err != nil {
				t.Fatal(err)
			}
			got, err := NewDecoder(&again, 1<<24).Decode()
			if err != nil {
				t.Fatalf("%#v: %v", m, err)
			}
			if diff := cmp.Diff(m, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("(-read +again):\n%s", diff)
			}
		}
	})
}

func benchKVs(n int) []KV {
	out := make([]KV, n)
	for i := range out {
		out[i] = KV{
			Key:      "/calico/v1/host/node-1/workload/k8s/prod%2fweb-0.a/endpoint/eth0",
			Value:    []byte(strings.Repeat(`{"state":"active","labels":{"app":"web"}}`, 8)),
			Revision: "123456", UpdateType: New,
		}
	}
	return out
}

func BenchmarkDecode(b *testing.B) {
	var stream bytes.Buffer
	_ = NewEncoder(&stream).Encode(KVs{benchKVs(1000)})
	for name, decode := range map[string]func() error{
		"ours": func() error { _, err := NewDecoder(bytes.NewReader(stream.Bytes()), 1<<24).Decode(); return err },
		"gob":  func() error { return gob.NewDecoder(bytes.NewReader(stream.Bytes())).Decode(&gobEnvelope{}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
