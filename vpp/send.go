package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/codec"

	"github.com/contiv-agent/contiv-agent/vpp/digest"
)

// MaxRequest bounds a message to VPP, in bytes, without the header of its frame. VPP itself has no limit, and collects a message in one
// allocation on its main heap. A call with a longer message fails with a GuardError before anything is allocated or sent.
const MaxRequest = 16 << 20

// sendCalls sends n calls of b when the window has room, or answers them at once; false: the session or ctx ended first.
func (s *session) sendCalls(ctx context.Context, b *batch, at, n int) bool {
	for {
		slots, ok := s.waitForSlots(ctx, n, b.calls[at].AtOnce)
		if !ok {
			return false
		}
		turn := s.submit(b, at, slots[:n])
		s.giveBack(slots[n:])
		if turn == nil {
			return true
		}
		select { // the guard needs an answer first
		case <-turn:
		case <-s.gone:
		case <-ctx.Done():
			return false
		}
	}
}

// submit encodes calls, one for each slot, into the out buffer, or answers them at once. If the guard needs an answer first, it does
// neither and returns a channel that is closed at the next answer. The writer never takes the buffer between these calls.
func (s *session) submit(b *batch, at int, slots []uint32) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, slot := range slots {
		err := s.err
		if err == nil {
			err = s.putCall(b, at+i, b.calls[at+i], slot)
		}
		if err == nil {
			continue
		}
		var ge *GuardError
		if i == 0 && errors.As(err, &ge) && ge.outstanding && s.busy > 0 {
			s.giveBack(slots)
			if s.turn == nil {
				s.turn = make(chan struct{})
			}
			return s.turn
		}
		s.giveBack(slots[i : i+1])
		s.answerCall(b, at+i, Reply{Err: err})
	}
	return nil
}

// putCall encodes and registers call. s.mu is held.
func (s *session) putCall(b *batch, at int, call Call, slot uint32) error {
	if call.Msg == nil {
		return fmt.Errorf("vpp: call without a message")
	}
	r := s.api.route(call.Msg)
	if r.missing != nil {
		return r.missing
	}
	if call.Dump != (r.reply == nil) && r.details == nil {
		return fmt.Errorf("vpp: %s is not a dump", r.name)
	}
	if !call.Dump && r.reply == nil {
		return fmt.Errorf("vpp: %s is a dump: set Call.Dump", r.name)
	}
	p, was := &s.pending[slot], len(s.out)
	context := p.context + 1<<slotBits
	if context>>slotBits == 0 {
		context += 1 << slotBits
	}
	if err := s.encodeMessage(r, call.Msg, context); err != nil {
		return err
	}
	if err := s.cfg.Guard.Check(call.Msg); err != nil { // last, because Check takes a permitted message as sent
		s.out = s.out[:was]
		return err
	}
	*p = pending{batch: b, route: r, msg: call.Msg, context: context, at: at, sent: time.Now()}
	if call.Digest || call.Brief {
		p.digest, p.brief = digest.Empty, call.Brief
	}
	if s.busy == 0 {
		s.watch.since = p.sent
		if nap := s.nap(false, 0); s.watch.due.Sub(p.sent) > nap {
			s.watch.set(p.sent, nap)
		}
	}
	s.busy++
	if r.reply == nil && !b.orphan {
		s.dumps++
	}
	s.wakeWriter()
	return nil
}

// wakeWriter wakes the writer.
func (s *session) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// encodeMessage appends msg to the out buffer, and for a dump the control_ping that ends it.
func (s *session) encodeMessage(r *route, msg api.Message, context uint32) error {
	was := len(s.out)
	if err := s.encodeOne(r.id, msg, context); err != nil {
		s.out = s.out[:was]
		return fmt.Errorf("encode %s: %w", r.name, err)
	}
	if r.reply == nil {
		var body []byte
		s.out, body = frame(s.out, requestHeader)
		s.header(body, s.api.ping.id, context)
	}
	return nil
}

func (s *session) header(body []byte, id uint16, context uint32) {
	binary.BigEndian.PutUint16(body, id)
	binary.BigEndian.PutUint32(body[2:], s.index)
	binary.BigEndian.PutUint32(body[6:], context)
}

func (s *session) encodeOne(id uint16, msg api.Message, context uint32) (err error) {
	defer func() { // generated code panics on strings longer than their field
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	m, ok := msg.(codec.Marshaler)
	if !ok {
		m = codec.Wrapper{Message: msg}
	}
	size := requestHeader + m.Size()
	if size > MaxRequest {
		return &GuardError{
			Message: msg.GetMessageName(), Rule: "message-size", Why: fmt.Sprintf("it would have %d bytes, at most %d are sent", size, MaxRequest),
		}
	}
	var body []byte
	s.out, body = frame(s.out, size)
	s.header(body, id, context)
	_, err = m.Marshal(body[requestHeader:])
	return err
}

// writer sends all gathered bytes in one write; meanwhile more gathers.
func (s *session) writer() {
	var buf []byte
	for {
		select {
		case <-s.wake:
		case <-s.gone:
			return
		}
		s.mu.Lock()
		buf, s.out = s.out, buf[:0]
		s.mu.Unlock()
		if len(buf) == 0 {
			continue
		}
		if _, err := s.wire.nc.Write(buf); err != nil {
			s.endWith(err)
			return
		}
		if cap(buf) > 4*readBuffer { // do not keep the buffer of one big message for ever
			buf = nil
		}
	}
}
