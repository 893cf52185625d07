package fanout

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// A segment is split if it exceeds either limit. Its size decides the cost of one change for the next snapshot. Full
// segments fill snappy's chunks, each of which is compressed without regard to earlier ones.
const (
	segmentEntries = 4096
	segmentBytes   = 8*64<<10 - 128
)

// entry is one key with its current value. It is immutable.
type entry struct {
	// element is the encoded KV, with update type New in its last byte but one; key and value are substrings of it.
	element, key, value string
	ttl                 time.Duration
}

// newEntry encodes a KV that has a key and a value.
func newEntry(kv wire.KV) *entry {
	kv.UpdateType = wire.New
	size := len(kv.Key) + len(kv.Value) + len(kv.Revision) + len(kv.V3ResourceVersion) + 48
	element := string(wire.AppendKV(make([]byte, 0, size), &kv))
	key := fieldHead(len(kv.Key))
	value := key + len(kv.Key) + fieldHead(len(kv.Value))
	return &entry{element, element[key : key+len(kv.Key)], element[value : value+len(kv.Value)], kv.TTL}
}

// fieldHead returns how many bytes precede the n bytes of a field: the field delta and the length.
func fieldHead(n int) int {
	size := 2
	if n >= 0x80 {
		for ; n > 0; n >>= 8 {
			size++
		}
	}
	return size
}

// appendAs appends the element with another update type.
func (e *entry) appendAs(dst []byte, as wire.UpdateType) []byte {
	dst = append(dst, e.element...)
	dst[len(dst)-2] = byte(as)
	return dst
}

// segment is a run of entries sorted by key. It is modified only while its generation equals the table's.
type segment struct {
	entries    []*entry
	bytes      int // of all elements
	generation uint64

	once   sync.Once
	canned []byte
}

// compressed returns the segment as one compressed message. The first caller compresses it. The segment must be frozen.
func (s *segment) compressed() []byte {
	s.once.Do(func() {
		apart(func() { s.canned = slices.Clone(wire.AppendSnappy(make([]byte, 0, s.bytes/4), s.plain())) })
	})
	return s.canned
}

// apart runs f in a separate goroutine and waits for it. Otherwise the stack that f needs would stay with the connection's
// long-lived goroutine.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// plain returns the segment as one message.
func (s *segment) plain() []byte { return appendEntries(nil, s.entries) }

// appendEntries appends entries as one message.
func appendEntries(dst []byte, entries []*entry) []byte {
	elements := make([]string, len(entries))
	for i, e := range entries {
		elements[i] = e.element
	}
	return wire.AppendKVs(dst, len(elements), elements...)
}

// table is a sorted set of entries. A frozen copy costs a list of pointers. The zero value is empty.
type table struct {
	segments   []*segment
	generation uint64
	shared     bool // segments is shared with a frozen copy
	keys       int
	bytes      int
	maxBytes   int // of a segment; 0: segmentBytes
}

// full reports whether a segment must be split.
func (t *table) full(s *segment) bool {
	return len(s.entries) > 1 && (len(s.entries) > segmentEntries || s.bytes > t.limit())
}

func (t *table) limit() int {
	if t.maxBytes != 0 {
		return t.maxBytes
	}
	return segmentBytes
}

// findKey returns the segment of a key and its place in it.
func (t *table) findKey(key string) (seg, at int, found bool) {
	if len(t.segments) == 0 {
		return 0, 0, false
	}
	seg = sort.Search(len(t.segments), func(i int) bool { return t.segments[i].entries[0].key > key })
	seg = max(seg-1, 0)
	at, found = slices.BinarySearchFunc(t.segments[seg].entries, key, func(e *entry, key string) int {
		return strings.Compare(e.key, key)
	})
	return seg, at, found
}

// getEntry returns the entry of a key, or nil.
func (t *table) getEntry(key string) *entry {
	if seg, at, ok := t.findKey(key); ok {
		return t.segments[seg].entries[at]
	}
	return nil
}

// putEntry adds an entry or replaces the one of its key.
func (t *table) putEntry(e *entry) {
	seg, at, found := t.findKey(e.key)
	if len(t.segments) == 0 {
		t.own()
		t.segments = []*segment{{generation: t.generation}}
	}
	s := t.writable(seg)
	if found {
		s.bytes -= len(s.entries[at].element)
		t.bytes -= len(s.entries[at].element)
		s.entries[at] = e
	} else {
		s.entries = slices.Insert(s.entries, at, e)
		t.keys++
	}
	s.bytes += len(e.element)
	t.bytes += len(e.element)
	if t.full(s) {
		t.split(seg, at)
	}
}

// removeKey deletes a key and reports whether it existed.
func (t *table) removeKey(key string) bool {
	seg, at, found := t.findKey(key)
	if !found {
		return false
	}
	s := t.writable(seg)
	s.bytes -= len(s.entries[at].element)
	t.bytes -= len(s.entries[at].element)
	t.keys--
	if s.entries = slices.Delete(s.entries, at, at+1); len(s.entries) == 0 {
		t.segments = slices.Delete(t.segments, seg, seg+1)
	}
	t.joinSegments(seg)
	t.joinSegments(seg - 1)
	return true
}

// split divides a segment that became too large by the entry at: in halves, or, if keys arrive in order, before that entry.
func (t *table) split(seg, at int) {
	s := t.segments[seg]
	if at != len(s.entries)-1 || seg != len(t.segments)-1 {
		at = len(s.entries) / 2
	}
	right := &segment{entries: slices.Clone(s.entries[at:]), generation: t.generation}
	for _, e := range right.entries {
		right.bytes += len(e.element)
	}
	s.bytes -= right.bytes
	clear(s.entries[at:])
	s.entries = s.entries[:at]
	t.segments = slices.Insert(t.segments, seg+1, right)
	for i := seg + 1; i >= seg; i-- { // entries of very different sizes
		if t.full(t.segments[i]) {
			t.split(i, 0)
		}
	}
}

// joinSegments merges a segment with the next one if both are small, so that deletes do not leave many small segments.
func (t *table) joinSegments(seg int) {
	if seg < 0 || seg+1 >= len(t.segments) {
		return
	}
	left, right, limit := t.segments[seg], t.segments[seg+1], t.limit()
	if len(left.entries)+len(right.entries) > segmentEntries/4 || left.bytes+right.bytes > limit/4 {
		return
	}
	left = t.writable(seg)
	left.entries = append(left.entries, right.entries...)
	left.bytes += right.bytes
	t.segments = slices.Delete(t.segments, seg+1, seg+2)
}

// pack fills all segments in the order of their keys. Keys that arrive in another order leave segments half full, and the
// rest of each last chunk compresses badly.
func (t *table) pack() {
	old := t.segments
	t.segments, t.shared = nil, false
	var s *segment
	for _, from := range old {
		for _, e := range from.entries {
			if s == nil || len(s.entries) == segmentEntries || s.bytes+len(e.element) > t.limit() {
				s = &segment{generation: t.generation}
				t.segments = append(t.segments, s)
			}
			s.entries = append(s.entries, e)
			s.bytes += len(e.element)
		}
	}
	for _, s := range t.segments {
		s.entries = slices.Clip(slices.Clone(s.entries))
	}
}

// own copies the list of segments if a frozen copy shares it.
func (t *table) own() {
	if t.shared {
		t.segments, t.shared = slices.Clone(t.segments), false
	}
}

// writable returns segment seg, copied if a frozen copy shares it.
func (t *table) writable(seg int) *segment {
	t.own()
	s := t.segments[seg]
	if s.generation != t.generation {
		s = &segment{entries: slices.Clone(s.entries), bytes: s.bytes, generation: t.generation}
		t.segments[seg] = s
	}
	return s
}

// freeze returns an immutable copy of the table.
func (t *table) freeze() snapshot {
	t.generation++
	t.shared = true
	return snapshot{segments: t.segments, keys: t.keys, bytes: t.bytes}
}

// snapshot is an immutable copy of a table.
type snapshot struct {
	segments []*segment
	keys     int
	bytes    int // of all elements
}

// prefixed calls yield for every entry whose key begins with prefix, in order.
func (s snapshot) prefixed(prefix string, yield func(*entry)) {
	t := table{segments: s.segments}
	seg, at, _ := t.findKey(prefix)
	for ; seg < len(s.segments); seg, at = seg+1, 0 {
		for _, e := range s.segments[seg].entries[at:] {
			if !strings.HasPrefix(e.key, prefix) {
				return
			}
			yield(e)
		}
	}
}
