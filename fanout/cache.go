package fanout

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/fanout/wire"
)

// crumb is one step of a cache: what changed since the crumb before. It is never written to but for next.
type crumb struct {
	seq     uint64
	at      time.Time
	status  wire.Status
	changes []change
	told    bool  // the status differs from the crumb's before
	offset  int64 // bytes of all changes up to and with this crumb

	next atomic.Pointer[crumb]
	done chan struct{} // closed when next is there

	messages *messages
	theirs   *messages // for who does not know our own keys; messages, if there are none among the changes
}

// messages are some changes in the bytes that are sent, each kind made by the first who asks.
type messages struct {
	onceSnappy, oncePlain sync.Once
	snappy, plain         []byte
}

// newCrumb makes a crumb of changes, which it keeps.
func newCrumb(seq uint64, at time.Time, status wire.Status, changes []change) *crumb {
	c := &crumb{seq: seq, at: at, status: status, changes: changes, done: make(chan struct{}), messages: &messages{}}
	c.theirs = c.messages
	if slices.ContainsFunc(changes, func(ch change) bool { return ch.own }) {
		c.theirs = &messages{}
	}
	return c
}

// change is one key's: an entry, or a delete.
type change struct {
	entry *entry
	as    wire.UpdateType
	gone  []byte // the element, for a delete
	own   bool   // a key that Calico's clients do not know
}

func (c change) size() int {
	if c.entry != nil {
		return len(c.entry.element)
	}
	return len(c.gone)
}

// frames is the crumb as messages, with or without our own keys; there may be nothing to say.
func (c *crumb) frames(snappy, own bool) []byte {
	m := c.theirs
	if own {
		m = c.messages
	}
	if !snappy {
		m.oncePlain.Do(func() { m.plain = c.encode(own) })
		return m.plain
	}
	m.onceSnappy.Do(func() { apart(func() { m.snappy = wire.AppendSnappy(nil, c.encode(own)) }) })
	return m.snappy
}

func (c *crumb) encode(own bool) []byte {
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
	if c.told {
		out = wire.AppendMessage(out, wire.SyncStatus{SyncStatus: c.status})
	}
	return out
}

// view is where a new client begins: all keys as of a crumb.
type view struct {
	snapshot
	own   snapshot // our own keys, which Calico's clients do not know
	crumb *crumb
}

// count is the number of all keys, and of their bytes.
func (v *view) count() (keys, bytes int) { return v.keys + v.own.keys, v.bytes + v.own.bytes }

// parts are the segments that a client is sent.
func (v *view) parts(own bool) []*segment {
	if !own || len(v.own.segments) == 0 {
		return v.segments
	}
	return slices.Concat(v.segments, v.own.segments)
}

// cache is one set of keys, as the source told it last. Its sources call tell; everybody may call latest.
type cache struct {
	name   string
	every  time.Duration // between publications; 0: pause says
	metric *cacheMetrics
	twin   *cache // the same set in its other form, told first: what is equal there is kept once; nil: none

	mu      sync.Mutex // of what the sources tell, which is not published yet
	table   table
	own     table // our own keys
	pending []change
	status  wire.Status
	offset  int64
	packed  bool // was in sync once

	dirty   chan struct{} // holds one if something waits to be published
	view    atomic.Pointer[view]
	start   atomic.Pointer[view] // where clients begin; at most startFor old
	clients atomic.Int64         // that follow the changes
}

// maxChanges is how many KVs one message of changes holds, as Typha has it.
const maxChanges = 100

func newCache(name string, every time.Duration, m *cacheMetrics) *cache {
	c := &cache{name: name, every: every, metric: m, dirty: make(chan struct{}, 1)}
	c.view.Store(&view{crumb: newCrumb(0, time.Now(), 0, nil)})
	return c
}

func (c *cache) latest() *view { return c.view.Load() }

// startFor is how long clients begin at the same view while keys change: what has changed since comes after it, and the
// snapshot is compressed for all of them once.
const startFor = time.Second

// begin is the view a new client begins with.
func (c *cache) begin(now time.Time) *view {
	v := c.start.Load()
	if v == nil || now.Sub(v.crumb.at) > startFor || v.crumb.status != c.latest().crumb.status {
		v = c.latest()
		c.start.Store(v)
	}
	return v
}

// pause is the least time between two publications: what one costs, each client's write, bounds how often they come.
func (c *cache) pause() time.Duration {
	if c.every != 0 {
		return c.every
	}
	return min(time.Millisecond+time.Duration(c.clients.Load())*25*time.Microsecond, 100*time.Millisecond)
}

// tell takes what a source says. KVs that change nothing are dropped, but for deletes.
func (c *cache) tell(b wire.Batch) {
	c.mu.Lock()
	before := len(c.pending)
	for _, kv := range b.KVs {
		if kv.Key == "" {
			continue
		}
		if ch, ok := c.change(kv); ok {
			c.offset += int64(ch.size())
			c.pending = append(c.pending, ch)
		}
	}
	news := len(c.pending) > before || b.Status != c.status
	c.metric.told.Add(float64(len(b.KVs)))
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

// change brings a KV into the table; false if it says nothing new.
func (c *cache) change(kv wire.KV) (change, bool) {
	table, own := c.tableOf(kv.Key)
	if kv.Deleted() {
		table.remove(kv.Key)
		gone := wire.KV{Key: kv.Key, Revision: kv.Revision, V3ResourceVersion: kv.V3ResourceVersion, UpdateType: wire.Deleted}
		return change{as: wire.Deleted, gone: wire.AppendKV(nil, &gone), own: own}, true
	}
	as := wire.New
	if old := table.get(kv.Key); old != nil {
		if old.value == string(kv.Value) && old.ttl == kv.TTL {
			return change{}, false
		}
		as = wire.Updated
	}
	e := c.twin.same(newEntry(kv))
	table.put(e)
	return change{entry: e, as: as, own: own}, true
}

// tableOf is where a key is kept.
func (c *cache) tableOf(key string) (t *table, own bool) {
	if strings.HasPrefix(key, wire.OwnKeys) {
		return &c.own, true
	}
	return &c.table, false
}

// same is an entry as the cache has it, or else the entry itself; nil is no cache.
func (c *cache) same(e *entry) *entry {
	if c == nil {
		return e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	table, _ := c.tableOf(e.key)
	if have := table.get(e.key); have != nil && have.element == e.element {
		return have
	}
	return e
}

// run publishes what was told until ctx ends: at once after a silence, else a while after the last time, so that many
// small changes become few crumbs. When the set is in sync for the first time, clients may be about to come: in what time is
// left the snapshot is compressed.
func (c *cache) run(ctx context.Context) {
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
		c.publish()
		if v := c.latest(); !warmed && v.crumb.status == wire.InSync {
			warm, warmed = v.parts(true), true
		}
		timer.Reset(c.pause())
	}
}

// publish makes crumbs of what is pending, and the view that goes with the last of them.
func (c *cache) publish() {
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
		if pending = pending[n:]; len(pending) == 0 { // only who has heard everything is in sync
			next.status, next.told, at = status, status != old, offset
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
		c.start.Store(nil) // it would keep all crumbs after it
	}
	last.next.Store(first)
	close(last.done)
	c.metric.published(v, seq-last.seq)
}
