package vpp

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/codec"

	"github.com/contiv-agent/contiv-agent/vpp/events"
)

// bytesConn is a socket into which VPP wrote data before it closed.
type bytesConn struct {
	net.Conn
	r *bytes.Reader
}

func (c *bytesConn) Read(b []byte) (int, error)  { return c.r.Read(b) }
func (c *bytesConn) Write(b []byte) (int, error) { return len(b), nil }
func (c *bytesConn) Close() error                { return nil }

// FuzzReader: whatever bytes follow the handshake, every call gets one answer, and nothing panics.
func FuzzReader(f *testing.F) {
	table := map[string]uint16{}
	for i, m := range []api.Message{
		&memclnt.ControlPing{}, &memclnt.ControlPingReply{}, &nat44_ed.Nat44LbStaticMappingDump{}, &nat44_ed.Nat44LbStaticMappingDetails{},
		&nat44_ed.Nat44EdOutputInterfaceGet{}, &nat44_ed.Nat44EdOutputInterfaceGetReply{}, &nat44_ed.Nat44EdOutputInterfaceDetails{},
	} {
		table[key(m)] = uint16(i)
	}
	const context = 2 << slotBits // the first of each slot
	seed := func(slot uint32, messages ...api.Message) []byte {
		var out, body []byte
		for _, m := range messages {
			data, err := codec.EncodeMsg(m, table[key(m)])
			if err != nil {
				f.Fatal(err)
			}
			out, body = frame(out, len(data))
			copy(body, data)
			binary.BigEndian.PutUint32(body[2:], context+slot)
		}
		return out
	}
	details := &nat44_ed.Nat44LbStaticMappingDetails{Locals: make([]nat44_ed.Nat44LbAddrPort, 2)}
	f.Add(seed(0, &memclnt.ControlPingReply{}))
	f.Add(seed(1, details, details, &memclnt.ControlPingReply{}))
	f.Add(seed(2, &nat44_ed.Nat44EdOutputInterfaceDetails{}, &nat44_ed.Nat44EdOutputInterfaceGetReply{Retval: int32(api.EAGAIN), Cursor: 7}))
	cut := seed(1, details)
	f.Add(cut[:len(cut)-3])
	registry := newRegistry()
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg := Config{Window: 4}.withDefaults()
		w := newWire(&bytesConn{r: bytes.NewReader(data)})
		s := newSession(&cfg, w, 7, registry.bind(table), events.New())
		calls := []Call{{Msg: &memclnt.ControlPing{}}, {Msg: &nat44_ed.Nat44LbStaticMappingDump{}, Dump: true}, {Msg: &nat44_ed.Nat44EdOutputInterfaceGet{}}}
		b := &batch{calls: calls, replies: make([]Reply, len(calls)), left: len(calls), done: make(chan struct{})}
		for i := range calls {
			b.replies[i].Err = errPending
			s.submit(b, i, []uint32{<-s.slots})
		}
		s.reader()
		select {
		case <-b.done:
		case <-time.After(time.Second):
			t.Fatal("calls without an answer")
		}
		for i, r := range b.replies {
			if r.Err == errPending || r.Err != nil && r.Details != nil {
				t.Errorf("call %d: %+v", i, r)
			}
		}
	})
}
