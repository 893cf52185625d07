package vpp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/vpp/digest"
	"github.com/contiv-agent/contiv-agent/vpp/events"
)

// session is one generation of the connection: from handshake to the first error.
type session struct {
	cfg           *Config
	wire          *wire
	index         uint32 // this client's index in VPP
	api           *messages
	events        *events.Dispatcher
	gone          chan struct{} // closed when the session fails
	wake          chan struct{} // the out buffer has content
	silentChanged chan struct{} // silent has changed
	slots         chan uint32   // free slots of the window
	wg            sync.WaitGroup

	joining sync.Mutex // held while a caller waits for more than one slot
	mu      sync.Mutex
	out     []byte // encoded, waiting for the writer
	pending []pending
	busy    int           // slots in use
	dumps   int           // dumps that a caller waits for
	err     error         // why the session failed
	turn    chan struct{} // closed at the next answer; nil: no sender waits for it
	silent  Silence
	watch   watch
}

// pending is a call without an answer; its slot is the low bits of its context.
type pending struct {
	batch   *batch
	route   *route
	msg     api.Message
	details []api.Message
	digest  digest.Sum // of the answer so far; zero: not wanted
	brief   bool
	context uint32
	at      int // index in the batch
	sent    time.Time
}

// batch is the calls of one Do.
type batch struct {
	calls   []Call
	replies []Reply
	left    int
	done    chan struct{}
	orphan  bool // Do has returned: answers only update the guard
}

const slotBits = 12 // maxWindow

func newSession(cfg *Config, w *wire, index uint32, m *messages, events *events.Dispatcher) *session {
	s := &session{
		cfg: cfg, wire: w, index: index, api: m, events: events,
		gone: make(chan struct{}), wake: make(chan struct{}, 1), silentChanged: make(chan struct{}, 1),
		slots: make(chan uint32, cfg.Window), pending: make([]pending, cfg.Window),
	}
	s.watch.timer = time.NewTimer(0)
	s.watch.set(time.Now(), s.nap(true, 0))
	for i := range cfg.Window {
		s.pending[i].context = uint32(i) + 1<<slotBits // context 0 is never used
		s.slots <- uint32(i)
	}
	return s
}

// start runs reader, writer and watchdog until the session fails; stop waits for them.
func (s *session) start() {
	s.wg.Go(s.reader)
	s.wg.Go(s.writer)
	s.wg.Go(s.watchdog)
}

func (s *session) stop(err error) {
	s.endWith(err)
	s.wg.Wait()
}

// endWith ends the session; the first error counts. The closed socket ends the reader, which answers everything pending.
func (s *session) endWith(err error) {
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
	b := &batch{calls: calls, replies: make([]Reply, len(calls)), left: len(calls), done: make(chan struct{})}
	if len(calls) == 0 {
		return b.replies
	}
	for i := range b.replies {
		b.replies[i].Err = errPending
	}
	for i := 0; i < len(calls); {
		n := s.joined(calls[i:])
		if !s.sendCalls(ctx, b, i, n) {
			return s.abandon(ctx, b)
		}
		i += n
	}
	select {
	case <-b.done:
		return b.replies
	case <-ctx.Done():
		return s.abandon(ctx, b)
	}
}

// joined returns how many of the next calls are sent together; 1 if the joined ones exceed the window. AtOnce calls share a write.
func (s *session) joined(calls []Call) (n int) {
	for bytes := 0; n < len(calls) && (n == 0 || calls[0].AtOnce && calls[n].AtOnce); {
		end := n
		for bytes += sizeOf(calls[end].Msg); calls[end].Joined && end+1 < len(calls); bytes += sizeOf(calls[end].Msg) {
			end++
		}
		if n > 0 && (bytes > mostRead || end >= cap(s.slots)) {
			break
		}
		if n = end + 1; n > cap(s.slots) {
			return 1
		}
	}
	return n
}

// mostRead is the most bytes that VPP reads from the socket at once (socket_api.c, input_buffer).
const mostRead = 4096

// sizeOf is an upper bound of a request's bytes on the socket: its fields, and both headers.
func sizeOf(m api.Message) int {
	if m, ok := m.(interface{ Size() int }); ok {
		return m.Size() + 32
	}
	return mostRead
}

// waitForSlots waits for n slots, or for all (VPP has answered everything then). One caller at a time waits for several: two with a part each
// would deadlock. False: the session or ctx ended first.
func (s *session) waitForSlots(ctx context.Context, n int, all bool) (slots []uint32, ok bool) {
	if all {
		n = cap(s.slots)
	}
	if n > 1 {
		s.joining.Lock()
		defer s.joining.Unlock()
	}
	for range n {
		slot, ok := s.slot(ctx)
		if !ok {
			s.giveBack(slots)
			return nil, false
		}
		slots = append(slots, slot)
	}
	return slots, true
}

// giveBack frees slots; it never blocks: the channel has room for all.
func (s *session) giveBack(slots []uint32) {
	for _, slot := range slots {
		s.slots <- slot
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

// abandon returns the answered replies; the others fail with the reason. If the session failed, the reader is failing the
// rest: abandon waits for that, so that each call has one answer.
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

// watchdog probes an idle connection, and closes one that owes an answer for too long without sending a byte. It never
// closes a connection while a caller waits for a dump: VPP may take long, and the caller has a ctx.
func (s *session) watchdog() {
	for {
		select {
		case <-s.gone:
			s.watch.timer.Stop()
			return
		case <-s.watch.timer.C:
		}
		s.mu.Lock()
		idle, dumps, now := s.busy == 0, s.dumps > 0, time.Now()
		heard := s.wire.lastByte()
		if s.watch.since.After(heard) {
			heard = s.watch.since
		}
		quiet := now.Sub(heard)
		s.watch.set(now, s.nap(idle, quiet))
		s.mu.Unlock()
		owed := quiet
		if idle {
			owed = 0
		}
		if s.listen(owed) {
			select {
			case s.silentChanged <- struct{}{}:
			default: // readers get the latest
			}
		}
		switch {
		case idle && s.cfg.Probe > 0 && quiet >= s.cfg.Probe:
			s.probe()
		case !idle && !dumps && s.cfg.Silence > 0 && quiet >= s.cfg.Silence:
			s.endWith(fmt.Errorf("silent for %s with calls unanswered", quiet.Round(time.Millisecond)))
			return
		}
	}
}

// watch is the times of the watchdog. session.mu is held.
type watch struct {
	since time.Time // when session.busy last rose from 0
	timer *time.Timer
	due   time.Time // when it wakes
}

func (w *watch) set(now time.Time, nap time.Duration) {
	w.due = now.Add(nap)
	w.timer.Reset(nap)
}

// nap returns how long the watchdog may sleep: no limit of a connection that is idle or not, and quiet for so long, ends more than a quarter of the
// shortest limit before it wakes. A request that is sent meanwhile wakes it earlier.
func (s *session) nap(idle bool, quiet time.Duration) time.Duration {
	d, late := time.Hour, time.Hour
	for i, limit := range []time.Duration{s.cfg.Probe, s.cfg.Late, s.cfg.Silence} {
		if limit <= 0 {
			continue
		}
		late = min(late, limit/4+1)
		switch {
		case idle && i > 0: // begins with a request
			continue
		case idle == (i == 0) && (!idle || quiet < limit): // counts already
			limit = max(0, limit-quiet)
		}
		d = min(d, limit)
	}
	return d + late
}

// probe sends a control_ping that no caller waits for: any byte from VPP afterwards is a sign of life.
func (s *session) probe() {
	slot, ok := s.slot(context.Background())
	if ok {
		s.submit(&batch{calls: []Call{{Msg: s.api.ping.new()}}, orphan: true, replies: make([]Reply, 1), left: 1}, 0, []uint32{slot})
	}
}
