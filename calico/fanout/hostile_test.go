package fanout

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// uselessDefinitions returns definitions of unused types: gob's frames of wireType{SliceT{CommonType{Id: n}, Elem:
// string}}.
func uselessDefinitions(bytes int) []byte {
	var out []byte
	for id := 1000; ; id++ {
		frame := []byte{0xfe, 0, 0, 2, 1, 2, 0xfe, 0, 0, 0, 1, 12, 0, 0}
		binary.BigEndian.PutUint16(frame[1:], uint16(2*id-1))
		binary.BigEndian.PutUint16(frame[7:], uint16(2*id))
		if len(out)+len(frame)+1 > bytes {
			return out
		}
		out = append(append(out, byte(len(frame))), frame...)
	}
}

// TestHostileClientsCostLittle measures the memory that crowds of hostile clients cost at most, while the server tolerates
// them, and none after that.
func TestHostileClientsCostLittle(t *testing.T) {
	crowd := pace.Fewer(100, 3)
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	plain := hello("n")
	plain.SupportsDecoderRestart = false
	say := func(ms ...wire.Message) func(net.Conn) {
		return func(conn net.Conn) {
			enc := wire.NewEncoder(conn)
			for _, m := range ms {
				if enc.Encode(m) != nil {
					return
				}
			}
		}
	}
	send := func(b []byte) func(net.Conn) { return func(conn net.Conn) { _, _ = conn.Write(b) } }
	shake := func(h wire.ClientHello) func(net.Conn) { // and read a part of the snapshot
		return func(conn net.Conn) {
			if c := newClient(conn); c.shake(h) != nil || h.SupportsDecoderRestart && c.step() != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 5000))
		}
	}
	long := wire.AppendMessage(wire.AppendDefinitions(nil, wire.ClientHello{}), wire.ClientHello{Info: strings.Repeat("x", helloLimit-2000)})
	for _, c := range []struct {
		name   string
		do     func(net.Conn)
		reads  bool // the client reads; else the server's write blocks
		most   int  // bytes per connection
		within time.Duration
	}{
		{name: "silent", do: say(), most: 16 << 10, within: 10 * time.Second},
		{name: "half a long hello", do: send(long[:len(long)-1]), most: 96 << 10, within: 10 * time.Second},
		{name: "definitions", do: send(uselessDefinitions(helloLimit - 100)), most: 128 << 10, within: 10 * time.Second},
		{name: "garbage", do: send([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 5000))), reads: true, most: 8 << 10},
		{name: "does not read the hello", do: say(hello("n")), most: 32 << 10, within: 120 * time.Second},
		{name: "no ACK", do: say(hello("n")), reads: true, most: 32 << 10, within: 60 * time.Second},
		{name: "no second ACK", do: say(hello("n"), wire.ACK{}), reads: true, most: 32 << 10, within: 60 * time.Second},
		{name: "no snapshot", do: shake(hello("n")), most: 32 << 10, within: 120 * time.Second},
		{name: "no snapshot, plain", do: shake(plain), most: 80 << 10, within: 120 * time.Second},
		{name: "no pongs", do: say(hello("n"), wire.ACK{}, wire.ACK{}), reads: true, most: 32 << 10, within: 80 * time.Second},
		{name: "no changes", do: func(conn net.Conn) {
			c := newClient(conn)
			_ = c.shake(hello("n"))
			_ = c.until(func() bool { return c.status == wire.InSync })
		}, most: 96 << 10, within: 120 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := serving(t, Config{MaxConnections: crowd, MaxBehindBytes: 4 << 20})
				var kvs []wire.KV
				for i := range 10_000 {
					kvs = append(kvs, kv(fmt.Sprintf("/calico/v1/host/n/%d", i), strings.Repeat(fmt.Sprint(i), 40)))
				}
				s.Publish(batchOf(wire.InSync, kvs...))
				time.Sleep(settle)
				s.Publish(batchOf(wire.InSync, kvs...)) // unchanged values
				for _, seg := range s.caches[set{syncer: wire.Felix}].latest().segments {
					seg.compressed()
				}
				before, most := memory(), uint64(0)
				look := func() { synctest.Wait(); most = max(most, memory()) }
				var conns []net.Conn
				for range crowd + 20 { // more than MaxConnections
					conn, err := l.dial()
					if err != nil {
						t.Fatal(err)
					}
					conns = append(conns, conn)
					go func() {
						if c.reads {
							go func() { _, _ = io.Copy(io.Discard, conn) }()
						}
						c.do(conn)
					}()
				}
				look()
				for i := range 20 { // changes arrive meanwhile
					s.Publish(batchOf(wire.InSync, kv("/calico/v1/change", strings.Repeat(fmt.Sprint(i%10), 100<<10))))
					time.Sleep(max(c.within/20, time.Second))
					look()
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if n := len(s.allConns()); n != 0 {
					t.Errorf("%d are still there after %s", n, c.within)
				}
				const changes = 3 * 4 << 20 // kept once for all clients behind, and compressed
				if each := int(most-min(most, before)-changes) / crowd; most > before+changes && each > c.most {
					t.Errorf("%d bytes for each, at most %d", each, c.most)
				}
				fmt.Fprintf(t.Output(), "%s: %d bytes for each\n", c.name, int(most-min(most, before))/crowd)
				for _, conn := range conns {
					_ = conn.Close()
				}
				synctest.Wait()
				if after := memory(); after > before+2<<20 {
					t.Errorf("%d KiB remain", (after-before)>>10)
				}
				good := connected(t, l, hello("good"))
				if err := good.until(func() bool { return good.status == wire.InSync }); err != nil || len(good.keys) != 10_001 {
					t.Errorf("a good client after it: %v, %d keys", err, len(good.keys))
				}
			})
		})
	}
}

// memory returns the bytes of live objects and stacks.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
