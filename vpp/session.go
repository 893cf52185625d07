package vpp

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/codec"
)

// session is one generation of the connection: from handshake to the first error.
type session struct {
	cfg    *Config
	wire   *wire
	index  uint32 // VPP's name for us
	api    *messages
	events *dispatcher
	gone   chan struct{} // closed when the session fails
	wake   chan struct{} // there is something to write
	slots  chan uint32   // free slots of the window
	wg     sync.WaitGroup

	mu       sync.Mutex
	out      []byte // encoded, waiting for the writer
	pending  []pending
	busy     int       // slots in use
	dumps    int       // dumps somebody waits for
	since    time.Time // when busy last rose from 0
	err      error     // why it failed
}

// pending is a call VPP has not answered; its slot is the low bits of its context.
type pending struct {
	batch   *batch
	route   *route
	msg     api.Message
	details []api.Message
	context uint32
	at      int // index in the batch
	sent    time.Time
}

// batch is one Do.
type batch struct {
	replies []Reply
	left    int
	done    chan struct{}
	orphan  bool // nobody waits any more: answers are for the guard only
}

const slotBits = 12 // maxWindow

func newSession(cfg *Config, w *wire, index uint32, m *messages, events *dispatcher) *session {
	s := &session{
		cfg: cfg, wire: w, index: index, api: m, events: events,
		gone: make(chan struct{}), wake: make(chan struct{}, 1),
		slots: make(chan uint32, cfg.Window), pending: make([]pending, cfg.Window),
	}
	for i := range cfg.Window {
		s.pending[i].context = uint32(i) + 1<<slotBits // context 0 is never ours
		s.slots <- uint32(i)
	}
	return s
}

// start runs reader, writer and watchdog until the session fails; stop waits for them.
func (s *session) start() {
	s.wire.heard.Store(time.Now().UnixNano())
	s.wg.Go(s.reader)
	s.wg.Go(s.writer)
	s.wg.Go(s.watchdog)
}

func (s *session) stop(err error) {
	s.fail(err)
	s.wg.Wait()
}

// fail ends the session; the first reason stays. The reader, which the closed socket ends, answers what is pending.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = ErrDisconnected
	if err != nil {
		s.err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	_ = s.wire.nc.Close()
	close(s.gone)
}

func (s *session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// do is Conn.Do on this generation: a batch never continues on the next one.
func (s *session) do(ctx context.Context, calls []Call) []Reply {
	b := &batch{replies: make([]Reply, len(calls)), left: len(calls), done: make(chan struct{})}
	if len(calls) == 0 {
		return b.replies
	}
	for i := range b.replies {
		b.replies[i].Err = errPending
	}
	for i := range calls {
		slot, ok := s.slot(ctx)
		if !ok {
			return s.abandon(ctx, b)
		}
		s.submit(b, i, calls[i], slot)
	}
	select {
	case <-b.done:
		return b.replies
	case <-ctx.Done():
		return s.abandon(ctx, b)
	}
}

// slot waits for room in the window; false: the session or ctx ended first.
func (s *session) slot(ctx context.Context) (uint32, bool) {
	select {
	case slot := <-s.slots:
		return slot, true
	default:
	}
	select {
	case slot := <-s.slots:
		return slot, true
	case <-s.gone:
		return 0, false
	case <-ctx.Done():
		return 0, false
	}
}

// abandon returns what is answered; the rest fails with the reason. When the session failed, what it still holds is
// being failed by the reader: waiting for that keeps each call's one answer.
func (s *session) abandon(ctx context.Context, b *batch) []Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := s.err
	if why == nil {
		why = fmt.Errorf("vpp has not answered: %w", context.Cause(ctx))
	}
	b.orphan = true
	for i := range s.pending {
		if p := &s.pending[i]; p.batch == b && p.route.reply == nil {
			s.dumps--
		}
	}
	for i := range b.replies {
		if b.replies[i].Err == errPending {
			b.replies[i] = Reply{Err: why}
		}
	}
	return b.replies
}

// submit encodes one call into the out buffer, or answers it at once.
func (s *session) submit(b *batch, at int, call Call, slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	if err == nil {
		err = s.put(b, at, call, slot)
	}
	if err == nil {
		return
	}
	s.slots <- slot // never blocks: the channel holds all slots
	s.answer(b, at, Reply{Err: err})
}

// put sends call on its way. s.mu is held.
func (s *session) put(b *batch, at int, call Call, slot uint32) error {
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
	if err := s.cfg.Guard.Check(call.Msg); err != nil {
		return err
	}
	p := &s.pending[slot]
	context := p.context + 1<<slotBits
	if context>>slotBits == 0 {
		context += 1 << slotBits
	}
	if err := s.encode(r, call.Msg, context); err != nil {
		s.cfg.Guard.Observe(call.Msg, Reply{Err: err})
		return err
	}
	*p = pending{batch: b, route: r, msg: call.Msg, context: context, at: at}
	if s.cfg.Observe != nil {
		p.sent = time.Now()
	}
	if s.busy == 0 {
		s.since = time.Now()
	}
	s.busy++
	if r.reply == nil && !b.orphan {
		s.dumps++
	}
	s.poke()
	return nil
}

// poke wakes the writer.
func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// encode appends msg, and for a dump the control_ping that closes it, to the out buffer.
func (s *session) encode(r *route, msg api.Message, context uint32) error {
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
	var body []byte
	s.out, body = frame(s.out, requestHeader+m.Size())
	s.header(body, id, context)
	_, err = m.Marshal(body[requestHeader:])
	return err
}

// writer sends what has gathered in one write; while it writes, more gathers.
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
			s.fail(err)
			return
		}
		if cap(buf) > 4*readBuffer { // one big message should not be remembered for ever
			buf = nil
		}
	}
}

// reader takes in everything VPP says, until it says no more.
func (s *session) reader() {
	defer s.drain()
	free := make([]uint32, 0, s.cfg.Window)
	for {
		body, err := s.wire.next()
		if err != nil {
			s.fail(err)
			return
		}
		if slot, done := s.receive(body); done {
			free = append(free, slot)
		}
		// Slots go back in bunches: one freed slot would wake a sender for one message and one write.
		if len(free) >= (s.cfg.Window+1)/2 || len(free) > 0 && !s.wire.more() {
			for _, slot := range free {
				s.slots <- slot
			}
			free = free[:0]
		}
	}
}

// receive handles one message; true: the slot is free again.
func (s *session) receive(body []byte) (uint32, bool) {
	k := s.api.at(binary.BigEndian.Uint16(body))
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
		return 0, false // nobody asked: an answer to the handshake's client index, or VPP repeating itself
	}
	return slot, s.match(slot, &p, k, body)
}

// match gives a message to the call it answers; true: the call is complete.
func (s *session) match(slot uint32, p *pending, k *kind, body []byte) bool {
	r := p.route
	switch {
	case k == nil:
	case r.details != nil && k == r.details:
		s.detail(slot, k, body)
		return false
	case r.reply == nil && k == s.api.pong:
		s.complete(slot, Reply{Details: p.details})
		return true
	case r.reply != nil && (k == r.reply || k == r.odd):
		m, err := decode(r.reply, body)
		if err == nil {
			if again := s.resume(slot, p, m); again {
				return false
			}
			err = retval(r, m)
		}
		s.complete(slot, Reply{Msg: m, Details: p.details, Err: err})
		return true
	}
	err := &UnexpectedError{Message: r.name, Got: s.api.describe(binary.BigEndian.Uint16(body))}
	if r.reply == nil { // the ping's answer is still to come
		s.note(slot, err)
		return false
	}
	s.complete(slot, Reply{Err: err})
	return true
}

// detail keeps one part of a dump.
func (s *session) detail(slot uint32, k *kind, body []byte) {
	m, err := decode(k, body)
	if err != nil {
		s.note(slot, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.pending[slot]
	p.details = append(p.details, m)
}

// note fails a call that is not complete yet; the first reason stays.
func (s *session) note(slot uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := &s.pending[slot]; !p.batch.orphan && p.batch.replies[p.at].Err == errPending {
		p.batch.replies[p.at].Err = err
	}
}

// resume sends a "get" request again from the cursor VPP returned, when it stopped in the middle (retval EAGAIN).
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
	next := reflect.New(asked.Type()) // the caller's message stays as it is
	next.Elem().Set(asked)
	next.Elem().Field(r.cursor).SetUint(cursor)
	msg := next.Interface().(api.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.encode(r, msg, p.context) != nil {
		return false
	}
	s.pending[slot].msg = msg
	s.poke()
	return true
}

// decode makes a message of the kind from its bytes.
func decode(k *kind, body []byte) (api.Message, error) {
	m := k.new()
	if err := codec.DecodeMsg(body, m); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.name, err)
	}
	return m, nil
}

// retval is the refusal a reply holds, nil if it holds none.
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

// complete answers a call and tells the guard, in VPP's order.
func (s *session) complete(slot uint32, reply Reply) {
	s.mu.Lock()
	p := s.pending[slot]
	if e := p.batch.replies[p.at].Err; !p.batch.orphan && e != errPending {
		reply = Reply{Err: e} // noted before
	}
	if reply.Err != nil {
		reply.Details = nil
	}
	s.mu.Unlock()
	s.cfg.Guard.Observe(p.msg, reply)
	if s.cfg.Observe != nil {
		s.cfg.Observe(p.route.name, time.Since(p.sent), reply.Err)
	}
	s.release(slot, reply)
}

// release frees a slot's call and hands its reply over.
func (s *session) release(slot uint32, reply Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.pending[slot]
	b, at := p.batch, p.at
	s.busy--
	if p.route.reply == nil && !b.orphan {
		s.dumps--
	}
	*p = pending{context: p.context}
	s.answer(b, at, reply)
}

// answer is the one place that fills a Reply. s.mu is held.
func (s *session) answer(b *batch, at int, reply Reply) {
	if b.orphan {
		return
	}
	b.replies[at] = reply
	if b.left--; b.left == 0 {
		close(b.done)
	}
}

// drain fails everything that is pending, at once. It is the reader's last act.
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

// event hands an unsolicited message to whoever subscribed.
func (s *session) event(k *kind, body []byte) {
	if k.typ == nil || len(body) < replyHeader {
		return
	}
	if m, err := decode(k, body); err == nil {
		s.cfg.Guard.Event(m)
		s.events.put(k.name, m)
	}
}

// watchdog probes an idle connection and gives up on one that owes an answer for too long without a byte. A dump that
// somebody waits for is never given up: VPP may take its time, and the one who waits has a ctx.
func (s *session) watchdog() {
	t := time.NewTimer(s.period())
	defer t.Stop()
	for {
		select {
		case <-s.gone:
			return
		case <-t.C:
		}
		t.Reset(s.period())
		heard := time.Unix(0, s.wire.heard.Load())
		s.mu.Lock()
		idle, dumps, since := s.busy == 0, s.dumps > 0, s.since
		s.mu.Unlock()
		if since.After(heard) {
			heard = since
		}
		switch quiet := time.Since(heard); {
		case idle && s.cfg.Probe > 0 && quiet >= s.cfg.Probe:
			s.probe()
		case !idle && !dumps && s.cfg.Silence > 0 && quiet >= s.cfg.Silence:
			s.fail(fmt.Errorf("silent for %s with calls unanswered", quiet.Round(time.Millisecond)))
			return
		}
	}
}

// period is how often the watchdog looks.
func (s *session) period() time.Duration {
	d := time.Hour
	for _, limit := range []time.Duration{s.cfg.Probe, s.cfg.Silence} {
		if limit > 0 {
			d = min(d, limit/4+1)
		}
	}
	return d
}

// probe sends a control_ping nobody waits for: whatever VPP says afterwards is life.
func (s *session) probe() {
	slot, ok := s.slot(context.Background())
	if ok {
		s.submit(&batch{orphan: true, replies: make([]Reply, 1), left: 1}, 0, Call{Msg: s.api.ping.new()}, slot)
	}
}
