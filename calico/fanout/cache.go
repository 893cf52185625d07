package fanout

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// crumb is one step of a cache: the changes since the previous crumb. Only its next field is ever written later.
type crumb struct {
	seq           uint64
	at            time.Time
	status        wire.Status
	changes       []change
	statusChanged bool  // the status differs from the previous crumb's
	offset        int64 // bytes of all changes up to and including this crumb

	next atomic.Pointer[crumb]
	done chan struct{} // closed when next is set

	messages *messages
	theirs   *messages // for clients that do not read /contiv/ keys; equals messages if no change has such a key
}

// messages are changes as encoded messages. The first client that needs a form encodes it.
type messages struct {
	onceSnappy, oncePlain sync.Once
	snappy, plain         []byte
}

// newCrumb returns a crumb with these changes; it keeps the slice.
func newCrumb(seq uint64, at time.Time, status wire.Status, changes []change) *crumb {
	c := &crumb{seq: seq, at: at, status: status, changes: changes, done: make(chan struct{}), messages: &messages{}}
	c.theirs = c.messages
	if slices.ContainsFunc(changes, func(ch change) bool { return ch.own }) {
		c.theirs = &messages{}
	}
	return c
}

// change is one key's new entry, or its delete.
type change struct {
	entry *entry
	as    wire.UpdateType
	gone  []byte // the encoded element of a delete
	own   bool   // a /contiv/ key, which Calico's clients do not know
}

func (c change) size() int {
	if c.entry != nil {
		return len(c.entry.element)
	}
	return len(c.gone)
}

// frames returns the crumb's messages, with or without /contiv/ keys; it may be empty.
func (c *crumb) frames(snappy, own bool) []byte {
	m := c.theirs
	if own {
		m = c.messages
	}
	if !snappy {
		m.oncePlain.Do(func() { m.plain = c.encodeChanges(own) })
		return m.plain
	}
	m.onceSnappy.Do(func() { apart(func() { m.snappy = wire.AppendSnappy(nil, c.encodeChanges(own)) }) })
	return m.snappy
}

func (c *crumb) encodeChanges(own bool) []byte {
	size, n := 0, 0
	for _, ch := range c.changes {
		if own || !ch.own {
			size, n = size+ch.size(), n+1
		}
	}
	var out []byte
	if n > 0 {
		elements := make([]byte, 0, size)
		for _, ch := range c.changes {
			switch {
			case ch.own && !own:
			case ch.entry == nil:
				elements = append(elements, ch.gone...)
			default:
				elements = ch.entry.appendAs(elements, ch.as)
			}
		}
		out = wire.AppendKVs(nil, n, elements)
	}
	if c.statusChanged {
		out = wire.AppendMessage(out, wire.SyncStatus{SyncStatus: c.status})
	}
	return out
}

// view is the starting point of a new client: all keys as of a crumb.
type view struct {
	snapshot
	own   snapshot // /contiv/ keys, which Calico's clients do not know
	crumb *crumb
}

// countKeys returns the number of all keys, and of their bytes.
func (v *view) countKeys() (keys, bytes int) { return v.keys + v.own.keys, v.bytes + v.own.bytes }

// parts returns the segments to send to a client.
func (v *view) parts(own bool) []*segment {
	if !own || len(v.own.segments) == 0 {
		return v.segments
	}
	return slices.Concat(v.segments, v.own.segments)
}

// cache holds one set of keys, as its source sent it last. Only sources call applyBatch; latest is safe for concurrent use.
type cache struct {
	name   string
	every  time.Duration // between publications; 0: see pause
	metric *cacheMetrics
	twin   *cache // the same set in its other form, which gets changes first; equal entries are shared with it; nil: none

	mu      sync.Mutex // guards changes that are not yet published
	table   table
	own     table // /contiv/ keys
	pending []change
	status  wire.Status
	offset  int64
	packed  bool // the tables were packed at the first in-sync

	dirty   chan struct{} // holds one if changes wait for publication
	view    atomic.Pointer[view]
	start   atomic.Pointer[view] // where new clients start; at most startFor old
	clients atomic.Int64         // number of clients that follow the changes
}

// maxChanges is the most KVs in one message of changes, as in Typha.
const maxChanges = 100

func newCache(name string, every time.Duration, m *cacheMetrics) *cache {
	c := &cache{name: name, every: every, metric: m, dirty: make(chan struct{}, 1)}
	c.view.Store(&view{crumb: newCrumb(0, time.Now(), 0, nil)})
	return c
}

func (c *cache) latest() *view { return c.view.Load() }

// startFor is how long new clients share one view while keys change. They get later changes after it, and the snapshot is
// compressed once for all of them.
const startFor = time.Second

// startView returns the view for a new client.
func (c *cache) startView(now time.Time) *view {
	v := c.start.Load()
	if v == nil || now.Sub(v.crumb.at) > startFor || v.crumb.status != c.latest().crumb.status {
		v = c.latest()
		c.start.Store(v)
	}
	return v
}

// pause returns the shortest time between two publications. It grows with their cost, one write per client.
func (c *cache) pause() time.Duration {
	if c.every != 0 {
		return c.every
	}
	return min(time.Millisecond+time.Duration(c.clients.Load())*25*time.Microsecond, 100*time.Millisecond)
}

// applyBatch takes a batch from a source. It drops KVs that change nothing, except deletes.
func (c *cache) applyBatch(b wire.Batch) {
	c.mu.Lock()
	before := len(c.pending)
	for _, kv := range b.KVs {
		if kv.Key == "" {
			continue
		}
		if ch, ok := c.applyKV(kv); ok {
			c.offset += int64(ch.size())
			c.pending = append(c.pending, ch)
		}
	}
	news := len(c.pending) > before || b.Status != c.status
	c.metric.changes.Add(float64(len(b.KVs)))
	c.metric.same.Add(float64(len(b.KVs) - len(c.pending) + before))
	c.status = b.Status
	c.mu.Unlock()
	if news {
		select {
		case c.dirty <- struct{}{}:
		default:
		}
	}
}

// applyKV applies a KV to its table; false if it changes nothing.
func (c *cache) applyKV(kv wire.KV) (change, bool) {
	table, own := c.tableOf(kv.Key)
	if kv.Deleted() {
		table.removeKey(kv.Key)
		gone := wire.KV{Key: kv.Key, Revision: kv.Revision, V3ResourceVersion: kv.V3ResourceVersion, UpdateType: wire.Deleted}
		return change{as: wire.Deleted, gone: wire.AppendKV(nil, &gone), own: own}, true
	}
	as := wire.New
	if old := table.getEntry(kv.Key); old != nil {
		if old.value == string(kv.Value) && old.ttl == kv.TTL {
			return change{}, false
		}
		as = wire.Updated
	}
	e := c.twin.reuseEntry(newEntry(kv))
	table.putEntry(e)
	return change{entry: e, as: as, own: own}, true
}

// tableOf returns the table for a key.
func (c *cache) tableOf(key string) (t *table, own bool) {
	if strings.HasPrefix(key, wire.OwnKeys) {
		return &c.own, true
	}
	return &c.table, false
}

// reuseEntry returns the equal entry in c, or else e itself; c may be nil.
func (c *cache) reuseEntry(e *entry) *entry {
	if c == nil {
		return e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	table, _ := c.tableOf(e.key)
	if have := table.getEntry(e.key); have != nil && have.element == e.element {
		return have
	}
	return e
}

// runPublisher publishes pending changes until ctx ends: at once after a quiet time, else a pause after the last publication, so
// that many small changes become few crumbs. Once the set is first in sync, it compresses the snapshot in idle time, since
// clients are likely to connect.
func (c *cache) runPublisher(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var warm []*segment
	warmed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		for ; len(warm) > 0 && len(c.dirty) == 0 && ctx.Err() == nil; warm = warm[1:] {
			warm[0].compressed()
		}
		select {
		case <-ctx.Done():
			return
		case <-c.dirty:
		}
		c.publishPending()
		if v := c.latest(); !warmed && v.crumb.status == wire.InSync {
			warm, warmed = v.parts(true), true
		}
		timer.Reset(c.pause())
	}
}

// publishPending turns pending changes into crumbs, and makes the view of the last crumb.
func (c *cache) publishPending() {
	c.mu.Lock()
	pending, status, offset := c.pending, c.status, c.offset
	c.pending = nil
	if status == wire.InSync && !c.packed {
		c.table.pack()
		c.own.pack()
		c.packed = true
	}
	v := &view{snapshot: c.table.freeze(), own: c.own.freeze()}
	c.mu.Unlock()

	last := c.latest().crumb
	if len(pending) == 0 && status == last.status {
		return
	}
	var first, tail *crumb
	now, seq, old := time.Now(), last.seq, last.status
	at := last.offset
	for first == nil || len(pending) > 0 {
		n := min(len(pending), maxChanges)
		seq++
		next := newCrumb(seq, now, old, slices.Clone(pending[:n]))
		for _, ch := range next.changes {
			at += int64(ch.size())
		}
		if pending = pending[n:]; len(pending) == 0 { // in-sync only after all changes
			next.status, next.statusChanged, at = status, status != old, offset
		}
		next.offset = at
		if first == nil {
			first = next
		} else {
			tail.next.Store(next)
			close(tail.done)
		}
		tail = next
	}
	v.crumb = tail
	c.view.Store(v)
	if old := c.start.Load(); old != nil && now.Sub(old.crumb.at) > startFor {
		c.start.Store(nil) // it would keep all later crumbs alive
	}
	last.next.Store(first)
	close(last.done)
	c.metric.published(v, seq-last.seq)
}
