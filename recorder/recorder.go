// Package recorder turns the events of an agent's loop into a journal on disk: a flight recorder.
//
//	loop ─ Observe ─▶ queue (bounded) ─▶ Run: lines ─▶ recorder/segment: files (bounded)
//	         └─ full: pending, the last version of each object
//
// Invariant: the loop never waits for the disk, and the journal always ends with the last version of each object that was written or is pending.
package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/recorder/record"
	"github.com/contiv-agent/contiv-agent/recorder/segment"
)

// DefaultBound is the usual bound of a journal.
const DefaultBound = 64 << 20

// Sizes of the queue, and of the batches that are written together.
const (
	queueLength = 1024
	batchLines  = 512
)

// retryPause is the pause after a failed write.
const retryPause = 5 * time.Second

// Config is the folder of a Recorder, and the agent that it records.
type Config struct {
	Dir      string
	Bound    int64 // bytes; 0: DefaultBound
	Node     string
	Version  string            // of the program
	Settings map[string]string // the agent's flags that differ from their defaults
	Sources  []string          // that the agent waits for
	Logger   *slog.Logger      // nil: silent
	Now      func() time.Time  // nil: time.Now
}

// Recorder records the events of one agent. A nil Recorder records nothing. The loop alone calls Observe.
type Recorder struct {
	cfg     Config
	writer  *segment.Writer // nil: the folder is not open yet
	queue   chan item
	pending *pending // of the loop; without items while the queue has room
	metrics *metrics
	trouble atomic.Pointer[string] // why nothing is recorded; nil: everything is
	full    bool                   // the objects do not fit: nothing more is recorded

	mu       sync.Mutex // requests are counted by the connection's reader
	messages map[string]*record.Messages
}

// item is an event with its time.
type item struct {
	at  time.Time
	ev  event.Event
	gap *record.Gap // what was lost before; ev is then nil
}

// New returns a recorder that opens its folder when Run is called.
func New(cfg Config) (*Recorder, error) {
	if cfg.Bound == 0 {
		cfg.Bound = DefaultBound
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Bound < segment.MinBound {
		return nil, fmt.Errorf("flight recorder: bound of %d bytes: want at least %d", cfg.Bound, segment.MinBound)
	}
	return &Recorder{cfg: cfg, queue: make(chan item, queueLength), pending: newPending(), metrics: newMetrics(), messages: map[string]*record.Messages{}}, nil
}

// Observe records an event. It never waits: if the queue is full, it keeps the last version of each object.
func (r *Recorder) Observe(ev event.Event) {
	if r == nil {
		return
	}
	_, tick := ev.(*event.Tick)
	if tick && r.pending.isEmpty() {
		return
	}
	now := r.cfg.Now()
	if !r.pending.isEmpty() {
		r.offerPending(now)
	}
	if tick {
		return
	}
	if r.pending.isEmpty() {
		select {
		case r.queue <- item{at: now, ev: ev}:
			return
		default:
		}
	}
	if r.pending.takeEvent(ev) {
		r.metrics.merged.Inc()
	} else {
		r.metrics.dropped.Inc()
	}
}

// offerPending moves everything pending to the queue if the queue has room for it.
func (r *Recorder) offerPending(now time.Time) {
	if len(r.queue)+r.pending.items() > cap(r.queue) { // the loop alone adds to the queue
		return
	}
	r.queue <- item{at: now, gap: r.pending.gap()}
	for _, ev := range r.pending.events() {
		r.queue <- item{at: now, ev: ev}
	}
	r.pending = newPending()
}

// CountRequests returns an observer of requests to VPP that counts them for the next outcome, and calls next.
func (r *Recorder) CountRequests(next func(string, time.Duration, error)) func(string, time.Duration, error) {
	if r == nil {
		return next
	}
	return func(name string, took time.Duration, err error) {
		r.countRequest(name, err)
		next(name, took, err)
	}
}

func (r *Recorder) countRequest(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.messages[name]
	if m == nil {
		m = &record.Messages{Name: name}
		r.messages[name] = m
	}
	if m.Count++; err != nil {
		m.Failed++
		m.Error = err.Error()
	}
}

// Run writes until ctx ends, and then what is in the queue. It returns nil: a full disk does not end the agent.
func (r *Recorder) Run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	defer r.close()
	for {
		select {
		case <-ctx.Done():
			for lines := r.drain(nil); len(lines) > 0; lines = r.drain(nil) {
				r.writeBatch(context.WithoutCancel(ctx), lines)
			}
			return nil
		case it := <-r.queue:
			r.writeBatch(ctx, r.drain(r.lines(nil, &it)))
		}
	}
}

// close closes the file; every line is written.
func (r *Recorder) close() {
	if r.writer != nil {
		_ = r.writer.Close()
	}
}

// appendLines opens the folder if it is not open yet, and writes lines.
func (r *Recorder) appendLines(lines []record.Line) (done int, err error) {
	if r.writer == nil {
		r.writer, err = segment.Open(segment.Config{
			Dir: r.cfg.Dir, Bound: r.cfg.Bound, Now: r.cfg.Now,
			Header: record.Header{Node: r.cfg.Node, Version: r.cfg.Version, Settings: r.cfg.Settings, Sources: r.cfg.Sources},
		})
		if err != nil {
			r.writer = nil
			return 0, err
		}
	}
	done, err = r.writer.Append(lines)
	r.metrics.sizes(r.writer.Size())
	return done, err
}

// drain adds the lines of events that wait.
func (r *Recorder) drain(lines []record.Line) []record.Line {
	for len(lines) < batchLines {
		select {
		case it := <-r.queue:
			lines = r.lines(lines, &it)
		default:
			return lines
		}
	}
	return lines
}

// lines appends the lines of an event.
func (r *Recorder) lines(out []record.Line, it *item) []record.Line {
	var more []record.Line
	switch ev := it.ev.(type) {
	case nil:
		more = []record.Line{record.GapLine(it.gap)}
	case *event.Committed:
		more = []record.Line{record.OutcomeLine(ev, r.takeMessages())}
	default:
		more = record.Lines(ev)
	}
	for i := range more {
		more[i].At = it.at
	}
	return append(out, more...)
}

// takeMessages returns the requests since the last outcome, by name.
func (r *Recorder) takeMessages() []record.Messages {
	r.mu.Lock()
	taken := r.messages
	r.messages = make(map[string]*record.Messages, len(taken))
	r.mu.Unlock()
	return record.SortMessages(taken)
}

// writeBatch writes lines, and tries again until it succeeds or ctx ends. Meanwhile the queue fills, and the loop merges what it has.
func (r *Recorder) writeBatch(ctx context.Context, lines []record.Line) {
	for len(lines) > 0 && !r.full {
		done, err := r.appendLines(lines)
		r.metrics.written.Add(float64(done))
		lines = lines[done:]
		if err == nil {
			if r.trouble.Swap(nil) != nil {
				r.cfg.Logger.Info("flight recorder: records again", "dir", r.cfg.Dir)
			}
			continue
		}
		if text := err.Error(); r.trouble.Swap(&text) == nil {
			r.metrics.failed.Inc()
			r.cfg.Logger.Warn("flight recorder: does not record", "dir", r.cfg.Dir, "err", err)
		}
		r.full = errors.Is(err, segment.ErrFull)
		if !r.full && !pauseFor(ctx, retryPause) {
			break
		}
	}
	r.metrics.dropped.Add(float64(len(lines)))
}

// pauseFor waits; false: ctx ended.
func pauseFor(ctx context.Context, d time.Duration) bool {
	if ctx.Done() == nil { // the agent ends
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Problem returns why the recorder does not record; "": it does, or there is none.
func (r *Recorder) Problem() string {
	if r == nil {
		return ""
	}
	if text := r.trouble.Load(); text != nil {
		return *text
	}
	return ""
}
