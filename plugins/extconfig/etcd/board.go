package etcd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

// How fast statuses are written: etcd takes 128 operations in a transaction.
const (
	maxBatch   = 100
	writePause = 100 * time.Millisecond
	revokeTime = 2 * time.Second
	maxAsked   = 1024 // events whose result is not there yet
	maxError   = 4096 // bytes of a status' error
	maxDetails = 20
)

// board is what there is to say of each key that is stored, and what of that is written already.
type board struct {
	ttl     time.Duration
	log     *slog.Logger
	metrics *metrics
	dial    func(context.Context) (writer, error)
	wake    chan struct{}              // has room for one
	asking  chan struct{}              // has an element for each answer that is due
	results chan *event.ExternalResult // has room for all of them

	mu     sync.Mutex
	rowsBy map[string]row               // by the key that is stored
	states map[string]event.ValueStatus // by the value's key, of those that are in rows; of no state: not known yet
	owner  map[string]string            // by the value's key: the key that is stored
	due    map[string]struct{}          // stored keys whose status may have to be written
	said   map[string]string            // what is written under the present lease
}

func newBoard(ttl time.Duration, log *slog.Logger, m *metrics) *board {
	return &board{
		ttl: ttl, log: log, metrics: m, wake: make(chan struct{}, 1),
		asking: make(chan struct{}, maxAsked), results: make(chan *event.ExternalResult, maxAsked),
		rowsBy: map[string]row{}, states: map[string]event.ValueStatus{}, owner: map[string]string{}, due: map[string]struct{}{}, said: map[string]string{},
	}
}

// rows takes what is stored.
func (b *board) rows(rows map[string]row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for raw := range rows { // what leaves first: another key may take its place
		if was := b.rowsBy[raw]; was.key != "" && b.owner[was.key] == raw {
			delete(b.owner, was.key)
			if now := rows[raw]; now.err == nil || now.key != was.key { // otherwise it is the same value still
				delete(b.states, was.key)
			}
		}
	}
	for raw, r := range rows {
		if r.gone {
			delete(b.rowsBy, raw)
		} else {
			if b.rowsBy[raw] = r; r.key != "" {
				b.owner[r.key] = raw
			}
		}
		b.due[raw] = struct{}{}
	}
	b.poke()
}

// asked takes note that these values are on their way: what is known of them is of those before.
func (b *board) asked(values map[string]proto.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range values {
		delete(b.states, key)
	}
}

// ask has the controller answer an event. It waits while many answers are due: meanwhile changes are put together.
func (b *board) ask(ctx context.Context, ev *event.External) {
	select {
	case <-ctx.Done():
		return
	case b.asking <- struct{}{}:
	}
	b.asked(ev.Values)
	ev.Result = b.results
}

// listen takes the answers.
func (b *board) listen(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-b.results:
			<-b.asking
			if r.Err != nil && len(r.Values) == 0 {
				b.log.Error("etcd: refused as a whole", "err", r.Err) // what is asked was checked before
			}
			b.answered(r.Values)
		}
	}
}

// answered takes the states of values the controller was asked for. What a transaction has said meanwhile is newer.
func (b *board) answered(statuses []event.ValueStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, st := range statuses {
		if _, known := b.states[st.Key]; !known {
			b.state(st)
		}
	}
	b.poke()
}

// committed takes the states of all values a transaction was about.
func (b *board) committed(statuses []event.ValueStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, st := range statuses {
		b.state(st)
	}
	b.poke()
}

func (b *board) state(st event.ValueStatus) {
	raw, stored := b.owner[st.Key]
	if !stored {
		delete(b.states, st.Key)
		return
	}
	b.states[st.Key] = st
	b.due[raw] = struct{}{}
}

func (b *board) poke() {
	if len(b.due) == 0 {
		return
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// text is what is to be written for a key, "" for nothing; false: it is not known yet.
func (b *board) text(raw string) (string, bool) {
	r, stored := b.rowsBy[raw]
	if !stored {
		return "", true
	}
	st := &kvscheduler.ValueStatus{Key: raw, State: kvscheduler.ValueState_INVALID}
	if r.err != nil {
		st.Error, st.LastOperation = r.err.Error(), kvscheduler.TxnOperation_VALIDATE
	} else {
		vpp, known := b.states[r.key]
		if !known {
			return "", false
		}
		st.State, st.Error, st.Details = kvscheduler.ValueState(vpp.State), vpp.Err, vpp.Details[:min(len(vpp.Details), maxDetails)]
	}
	st.Error = strings.ToValidUTF8(st.Error[:min(len(st.Error), maxError)], "?")
	st.Key = strings.ToValidUTF8(st.Key, "?")
	out, err := protojson.Marshal(st)
	if err != nil {
		panic("etcd: status of " + raw + ": " + err.Error()) // UTF-8 was all that could be wrong
	}
	return string(out), true
}

// batch is what is written at once.
type batch struct {
	puts    []pair
	deletes []string
	raws    []string
	texts   []string
}

// next is what is due, as much as fits into a transaction; nil: nothing.
func (b *board) next() *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := &batch{}
	for raw := range b.due {
		if len(out.raws) == maxBatch {
			b.poke()
			break
		}
		delete(b.due, raw)
		text, known := b.text(raw)
		if said := b.said[raw]; !known || said == text {
			continue
		}
		key := statusPrefix + strings.TrimPrefix(raw, configPrefix)
		if out.raws, out.texts = append(out.raws, raw), append(out.texts, text); text == "" {
			out.deletes = append(out.deletes, key)
		} else {
			out.puts = append(out.puts, pair{key: key, value: []byte(text)})
		}
	}
	if len(out.raws) == 0 {
		return nil
	}
	slices.SortFunc(out.puts, func(x, y pair) int { return strings.Compare(x.key, y.key) })
	return out
}

// written takes note that a batch was written, or that nobody knows.
func (b *board) written(done *batch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, raw := range done.raws {
		switch {
		case err != nil:
			b.due[raw] = struct{}{}
			b.said[raw] = "?"
		case done.texts[i] == "":
			delete(b.said, raw)
		default:
			b.said[raw] = done.texts[i]
		}
	}
	b.poke()
}

// forget takes note that what was written is gone, with its lease.
func (b *board) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.said)
	for raw := range b.rowsBy {
		b.due[raw] = struct{}{}
	}
	b.poke()
}

// publish writes statuses until ctx ends; then they go.
func (b *board) publish(ctx context.Context) error {
	pause := firstPause
	for {
		wrote, err := b.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if wrote {
			pause = firstPause
		}
		b.log.Debug("etcd: statuses", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = backoff.Range{Min: firstPause, Max: maxPause}.Next(pause)
	}
}

// session is one lease.
func (b *board) session(ctx context.Context) (wrote bool, err error) {
	w, err := b.dial(ctx)
	if err != nil {
		return false, err
	}
	defer w.Close()
	alive, cancel := context.WithCancel(ctx)
	lease, lost, err := w.Grant(alive, b.ttl)
	if err != nil {
		cancel()
		return false, err
	}
	b.forget()
	defer func() {
		leave, done := context.WithTimeout(context.WithoutCancel(ctx), revokeTime)
		defer done()
		_ = w.Revoke(leave, lease) // otherwise it expires
		cancel()
		<-lost
	}()
	pause := writePause
	for {
		select {
		case <-ctx.Done():
			return wrote, ctx.Err()
		case <-lost:
			return wrote, errLeaseLost
		case <-b.wake:
		}
		if some := b.next(); some != nil {
			err := w.Write(ctx, lease, some.puts, some.deletes)
			b.written(some, err)
			b.metrics.written(err)
			switch {
			case errors.Is(err, errLeaseLost):
				return wrote, err
			case err == nil:
				wrote, pause = true, writePause
			case ctx.Err() == nil:
				if pause == writePause {
					b.log.Warn("etcd: statuses not written", "err", err)
				}
				pause = backoff.Range{Min: writePause, Max: maxPause}.Next(pause)
			}
		}
		select {
		case <-ctx.Done():
		case <-lost:
		case <-time.After(pause):
		}
	}
}
