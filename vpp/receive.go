package vpp

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/codec"
)

// reader handles all messages from VPP until the stream ends.
func (s *session) reader() {
	defer s.drain()
	free := make([]uint32, 0, s.cfg.Window)
	for {
		body, err := s.wire.nextMessage()
		if err != nil {
			s.endWith(err)
			return
		}
		if slot, done := s.receive(body); done {
			free = append(free, slot)
		}
		// Slots are freed in groups: a single freed slot would wake a sender for one message and one write.
		if len(free) >= (s.cfg.Window+1)/2 || len(free) > 0 && !s.wire.more() {
			for _, slot := range free {
				s.slots <- slot
			}
			free = free[:0]
		}
	}
}

// receive handles one message; true: its slot is free again.
func (s *session) receive(body []byte) (uint32, bool) {
	k := s.api.kindAt(binary.BigEndian.Uint16(body))
	if k != nil && k.event {
		s.event(k, body)
		return 0, false
	}
	context := binary.BigEndian.Uint32(body[2:])
	slot := context & (1<<slotBits - 1)
	if int(slot) >= len(s.pending) {
		return 0, false
	}
	s.mu.Lock()
	p := s.pending[slot]
	s.mu.Unlock()
	if p.batch == nil || p.context != context {
		return 0, false // no call waits for it: an answer to the handshake's client index, or a repeated answer
	}
	return slot, s.match(slot, &p, k, body)
}

// match assigns a message to the call it answers; true: the call is complete.
func (s *session) match(slot uint32, p *pending, k *kind, body []byte) bool {
	r := p.route
	switch {
	case k == nil:
	case r.details != nil && k == r.details:
		s.detail(slot, p, k, body)
		return false
	case r.reply == nil && k == s.api.pong:
		s.complete(slot, Reply{Details: p.details, Digest: p.digest})
		return true
	case r.reply != nil && (k == r.reply || k == r.odd):
		m, err := decode(r.reply, body)
		if err == nil {
			if again := s.resume(slot, p, m); again {
				return false
			}
			err = retval(r, m)
		}
		s.complete(slot, Reply{Msg: m, Details: p.details, Err: err, Digest: p.digest.With(body[min(replyHeader, len(body)):])})
		return true
	}
	err := &UnexpectedError{Message: r.name, Got: s.api.describe(binary.BigEndian.Uint16(body))}
	if r.reply == nil { // the answer to the control_ping is still outstanding
		s.noteError(slot, err)
		return false
	}
	s.complete(slot, Reply{Err: err})
	return true
}

// detail keeps one detail of a dump, or adds it to the digest alone.
func (s *session) detail(slot uint32, p *pending, k *kind, body []byte) {
	var list []api.Message
	if !p.brief {
		m, err := decode(k, body)
		if err != nil {
			s.noteError(slot, err)
			return
		}
		list = append(p.details, m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[slot].details, s.pending[slot].digest = list, p.digest.With(body[min(replyHeader, len(body)):])
}

// noteError fails a call that is not complete yet; the first error counts.
func (s *session) noteError(slot uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := &s.pending[slot]; !p.batch.orphan && p.batch.replies[p.at].Err == errPending {
		p.batch.replies[p.at].Err = err
	}
}

// resume sends a "get" request again from the cursor that VPP returned, if VPP stopped in the middle (retval EAGAIN).
func (s *session) resume(slot uint32, p *pending, reply api.Message) bool {
	r := p.route
	if r.details == nil || r.cursor < 0 || r.reply.cursor < 0 || r.reply.retval < 0 {
		return false
	}
	v := reflect.ValueOf(reply).Elem()
	cursor := v.Field(r.reply.cursor).Uint()
	asked := reflect.ValueOf(p.msg).Elem()
	if api.VPPApiError(v.Field(r.reply.retval).Int()) != api.EAGAIN || cursor == asked.Field(r.cursor).Uint() {
		return false
	}
	next := reflect.New(asked.Type()) // the caller's message is not changed
	next.Elem().Set(asked)
	next.Elem().Field(r.cursor).SetUint(cursor)
	msg := next.Interface().(api.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.encodeMessage(r, msg, p.context) != nil {
		return false
	}
	s.pending[slot].msg = msg
	s.wakeWriter()
	return true
}

// decode decodes a message of the kind.
func decode(k *kind, body []byte) (api.Message, error) {
	m := k.new()
	if err := k.count.checkLength(body[min(replyHeader, len(body)):]); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.name, err)
	}
	if err := codec.DecodeMsg(body, m); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.name, err)
	}
	return m, nil
}

// retval returns the *Retval of a refusing reply, else nil.
func retval(r *route, m api.Message) error {
	if r.reply.retval < 0 {
		return nil
	}
	code := int32(reflect.ValueOf(m).Elem().Field(r.reply.retval).Int())
	if code == 0 {
		return nil
	}
	return &Retval{Message: r.name, Code: code}
}

// complete answers a call and updates the guard, in VPP's order.
func (s *session) complete(slot uint32, reply Reply) {
	s.mu.Lock()
	p := s.pending[slot]
	if e := p.batch.replies[p.at].Err; !p.batch.orphan && e != errPending {
		reply = Reply{Err: e} // from note
	}
	if reply.Err != nil {
		reply.Details = nil
	}
	s.mu.Unlock()
	if !p.brief { // without its details the guard would take the objects for gone
		s.cfg.Guard.Observe(p.msg, reply)
	}
	if s.cfg.Observe != nil {
		s.cfg.Observe(p.route.name, time.Since(p.sent), reply.Err)
	}
	s.releaseSlot(slot, reply)
}

// releaseSlot frees a call's slot and delivers its reply.
func (s *session) releaseSlot(slot uint32, reply Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.pending[slot]
	b, at := p.batch, p.at
	s.busy--
	if p.route.reply == nil && !b.orphan {
		s.dumps--
	}
	*p = pending{context: p.context}
	if s.turn != nil {
		close(s.turn)
		s.turn = nil
	}
	s.answerCall(b, at, reply)
}

// answerCall is the only place that fills a Reply. s.mu is held.
func (s *session) answerCall(b *batch, at int, reply Reply) {
	if b.orphan {
		return
	}
	b.replies[at] = reply
	if at < len(b.calls) && b.calls[at].Done != nil {
		b.calls[at].Done(reply)
	}
	if b.left--; b.left == 0 {
		close(b.done)
	}
}

// drain fails everything that is pending, at once, when the reader ends.
func (s *session) drain() {
	s.mu.Lock()
	var lost []uint32
	for i := range s.pending {
		if s.pending[i].batch != nil {
			lost = append(lost, uint32(i))
		}
	}
	err := s.err
	s.mu.Unlock()
	for _, slot := range lost {
		s.complete(slot, Reply{Err: err})
	}
}

// event passes an unsolicited message to its callbacks.
func (s *session) event(k *kind, body []byte) {
	if k.typ == nil || len(body) < replyHeader {
		return
	}
	if m, err := decode(k, body); err == nil {
		s.cfg.Guard.Event(m)
		s.events.PutEvent(k.name, m)
	}
}
