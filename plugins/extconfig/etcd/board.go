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

// Limits on the rate of status writes. etcd takes 128 operations in a transaction.
const (
	maxBatch   = 100
	writePause = 100 * time.Millisecond
	revokeTime = 2 * time.Second
	maxAsked   = 1024 // events without a result yet
	maxError   = 4096 // bytes of the error in a status
	maxDetails = 20
)

// board holds the status of each stored key, and which statuses are already written.
type board struct {
	ttl     time.Duration
	log     *slog.Logger
	metrics *metrics
	dial    func(context.Context) (writer, error)
	wake    chan struct{}              // capacity one
	asking  chan struct{}              // has an element for each pending answer
	results chan *event.ExternalResult // capacity for all answers

	mu     sync.Mutex
	rowsBy map[string]row               // by stored key
	states map[string]event.ValueStatus // by the value's key, for the values in rows; without a state: unknown
	owner  map[string]string            // the value's key → the stored key
	due    map[string]struct{}          // stored keys whose status may have to be written
	said   map[string]string            // statuses written under the present lease
}

func newBoard(ttl time.Duration, log *slog.Logger, m *metrics) *board {
	return &board{
		ttl: ttl, log: log, metrics: m, wake: make(chan struct{}, 1),
		asking: make(chan struct{}, maxAsked), results: make(chan *event.ExternalResult, maxAsked),
		rowsBy: map[string]row{}, states: map[string]event.ValueStatus{}, owner: map[string]string{}, due: map[string]struct{}{}, said: map[string]string{},
	}
}

// rows records changes of the stored keys.
func (b *board) rows(rows map[string]row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for raw := range rows { // deletions first, because another key may take its place
		if was := b.rowsBy[raw]; was.key != "" && b.owner[was.key] == raw {
			delete(b.owner, was.key)
			if now := rows[raw]; now.err == nil || now.key != was.key { // otherwise the value is unchanged
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

// asked records that these values are sent and not answered: the known states belong to earlier values.
func (b *board) asked(values map[string]proto.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range values {
		delete(b.states, key)
	}
}

// ask sends the controller an event with a result. It waits while many results are pending, and changes are merged during that time.
func (b *board) ask(ctx context.Context, ev *event.External) {
	select {
	case <-ctx.Done():
		return
	case b.asking <- struct{}{}:
	}
	b.asked(ev.Values)
	ev.Result = b.results
}

// listen receives the results.
func (b *board) listen(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-b.results:
			<-b.asking
			if r.Err != nil && len(r.Values) == 0 {
				b.log.Error("etcd: refused as a whole", "err", r.Err) // the source validated the event before
			}
			b.answered(r.Values)
		}
	}
}

// answered records the states from a result. States from a later transaction are newer and take precedence.
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

// committed records the states of all values in a transaction.
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

// statusText returns the status to write for a key, "" for none; false: unknown yet.
func (b *board) statusText(raw string) (string, bool) {
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
		panic("etcd: status of " + raw + ": " + err.Error()) // only invalid UTF-8 could fail
	}
	return string(out), true
}

// batch is the content of one write.
type batch struct {
	puts    []pair
	deletes []string
	raws    []string
	texts   []string
}

// nextBatch returns the statuses that are due, as many as fit into a transaction; nil: none.
func (b *board) nextBatch() *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := &batch{}
	for raw := range b.due {
		if len(out.raws) == maxBatch {
			b.poke()
			break
		}
		delete(b.due, raw)
		text, known := b.statusText(raw)
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

// written records the result of a write: success, or unknown.
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

// forgetWritten records that the written statuses expired with their lease.
func (b *board) forgetWritten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.said)
	for raw := range b.rowsBy {
		b.due[raw] = struct{}{}
	}
	b.poke()
}

// publishStatuses writes statuses until ctx ends, and then removes them.
func (b *board) publishStatuses(ctx context.Context) error {
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

// session serves one lease.
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
	b.forgetWritten()
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
		if some := b.nextBatch(); some != nil {
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
