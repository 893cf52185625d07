package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

var errCompacted = errors.New("required revision has been compacted")

// fake is an etcd behind reader and writer: revisions, compaction, leases, and a connection that tests can cut.
type fake struct {
	mu        sync.Mutex
	rev       int64
	compacted int64
	history   [][]pair // by revision - 1
	values    map[string]string
	leases    map[string]int64 // of statuses, by key
	lost      map[int64]chan struct{}
	lastLease int64
	away      error         // every call fails
	cut       chan struct{} // closed when connections are cut
	changed   chan struct{} // closed at each change
	pages     []int64       // requested limits
	longest   int64         // a page of more keys is too long; 0: no page is
	writes    int           // number of transactions with statuses
	refuse    error         // error of writes
	onPage    func()
}

func newFake() *fake {
	return &fake{values: map[string]string{}, leases: map[string]int64{}, lost: map[int64]chan struct{}{}, cut: make(chan struct{}), changed: make(chan struct{})}
}

// put is one transaction: values by key, "" deletes.
func (f *fake) put(values map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rev++
	var pairs []pair
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if v := values[key]; v == "" {
			delete(f.values, key)
			pairs = append(pairs, pair{key: key, deleted: true})
		} else {
			f.values[key] = v
			pairs = append(pairs, pair{key: key, value: []byte(v)})
		}
	}
	f.history = append(f.history, pairs)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) disconnect(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = why
	close(f.cut)
	f.cut = make(chan struct{})
}

func (f *fake) reconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = nil
}

func (f *fake) compact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compacted = f.rev
}

func (f *fake) status(raw string) *kvscheduler.ValueStatus {
	f.mu.Lock()
	text, there := f.values[statusPrefix+strings.TrimPrefix(raw, configPrefix)]
	f.mu.Unlock()
	if !there {
		return nil
	}
	st := &kvscheduler.ValueStatus{}
	if err := protojson.Unmarshal([]byte(text), st); err != nil {
		panic(err)
	}
	return st
}

// connection is a connection to the fake.
type connection struct {
	*fake
	cut <-chan struct{}
}

func (f *fake) connect() (*connection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &connection{f, f.cut}, f.away
}

func (c *connection) Close() {}

func (c *connection) dead() error {
	select {
	case <-c.cut:
		return errLost
	default:
		return nil
	}
}

func (c *connection) Page(_ context.Context, from string, limit, rev int64) (*page, error) {
	if c.onPage != nil {
		c.onPage()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.dead(); err != nil {
		return nil, err
	}
	if c.pages = append(c.pages, limit); c.longest > 0 && limit > c.longest {
		return nil, errPageTooLong
	}
	values := c.values
	switch {
	case rev != 0 && rev < c.compacted:
		return nil, errCompacted
	case rev != 0:
		values = map[string]string{}
		for _, pairs := range c.history[:rev] {
			for _, p := range pairs {
				if values[p.key] = string(p.value); p.deleted {
					delete(values, p.key)
				}
			}
		}
	}
	out := &page{rev: c.rev}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !strings.HasPrefix(key, configPrefix) || key < from {
			continue
		}
		if out.more = int64(len(out.pairs)) == limit; out.more {
			break
		}
		out.pairs = append(out.pairs, pair{key: key, value: []byte(values[key])})
	}
	return out, nil
}

func (c *connection) Watch(ctx context.Context, rev int64, handle func(int64, []pair)) error {
	for {
		c.mu.Lock()
		changed, err := c.changed, c.dead()
		if err == nil && rev < c.compacted {
			err = errCompacted
		}
		var news [][]pair
		if err == nil {
			news = c.history[rev:]
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
		for _, pairs := range news {
			rev++
			if pairs = slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool { return !strings.HasPrefix(p.key, configPrefix) }); len(pairs) > 0 {
				handle(rev, pairs)
			}
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.cut:
			return errLost
		case <-changed:
		}
	}
}

func (c *connection) Grant(context.Context, time.Duration) (int64, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastLease++
	c.lost[c.lastLease] = make(chan struct{})
	return c.lastLease, c.lost[c.lastLease], c.dead()
}

func (c *connection) Write(_ context.Context, lease int64, puts []pair, deletes []string) error {
	c.mu.Lock()
	err := c.dead()
	if c.lost[lease] == nil {
		err = errLeaseLost
	}
	if c.refuse != nil {
		err = c.refuse
	}
	c.writes++
	c.mu.Unlock()
	if err != nil {
		return err
	}
	values := map[string]string{}
	for _, p := range puts {
		values[p.key] = string(p.value)
		c.mu.Lock()
		c.leases[p.key] = lease
		c.mu.Unlock()
	}
	for _, key := range deletes {
		values[key] = ""
	}
	c.put(values)
	return nil
}

func (c *connection) Revoke(_ context.Context, lease int64) error {
	c.expire(lease)
	return nil
}

// expire ends a lease; 0: the present one.
func (f *fake) expire(lease int64) {
	f.mu.Lock()
	if lease == 0 {
		lease = f.lastLease
	}
	if ch := f.lost[lease]; ch != nil {
		close(ch)
	}
	delete(f.lost, lease)
	values := map[string]string{}
	for key, l := range f.leases {
		if l == lease {
			values[key] = ""
			delete(f.leases, key)
		}
	}
	f.mu.Unlock()
	f.put(values)
}

// node is a controller with a VPP that accepts every value, and a source on a fake etcd.
type node struct {
	*fake
	t      testing.TB
	source *Source
	in     chan event.Event
	stop   func()

	mu     sync.Mutex
	has    kv.Values
	txns   []*event.Txn
	states map[string]event.ValueStatus // VPP's states for keys, in place of CONFIGURED
	busy   chan struct{}                // VPP answers after a send; nil: at once
	notes  []*event.SyncStatus
}

func config() Config { return Config{Endpoints: []string{"127.0.0.1:1"}, Label: "node-1"} }

// start starts everything; internal is the agent's desired state.
func start(t testing.TB, f *fake, cfg Config, internal kv.Values) *node {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{fake: f, t: t, source: s, in: make(chan event.Event, 64), has: kv.Values{}, states: map[string]event.ValueStatus{}}
	s.dial = func(context.Context) (reader, error) { return f.connect() }
	if s.board != nil {
		s.board.dial = func(context.Context) (writer, error) { return f.connect() }
	}
	values := controller.NewValues()
	values.Set("internal", internal, nil)
	out := make(chan *event.Txn, 1)
	c := controller.New(controller.Config{Sources: []string{Name}, Observer: controller.Observer{
		Committed: func(ev *event.Committed) { s.Committed(ev, values.Sent) },
		Source:    func(ev *event.SyncStatus) { n.mu.Lock(); n.notes = append(n.notes, ev); n.mu.Unlock() },
	}}, values)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = c.Run(ctx, n.in, out) })
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case txn := <-out:
				n.say(ctx, n.commit(ctx, txn))
			}
		}
	})
	all.Go(func() {
		if err := s.Run(ctx, func(ev event.Event) { n.say(ctx, ev) }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	n.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(n.stop)
	n.say(ctx, &event.VPPStatus{Connected: true})
	return n
}

func (n *node) say(ctx context.Context, ev event.Event) {
	select {
	case <-ctx.Done():
	case n.in <- ev:
	}
}

func (n *node) commit(ctx context.Context, txn *event.Txn) *event.Committed {
	n.mu.Lock()
	busy := n.busy
	n.mu.Unlock()
	if busy != nil {
		select {
		case <-ctx.Done():
		case <-busy:
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.txns = append(n.txns, txn)
	done := &event.Committed{Seq: txn.Seq, Resync: txn.Resync}
	if txn.Resync == event.Full {
		clear(n.has)
	}
	for key, msg := range txn.Values {
		st := event.ValueStatus{Key: key, State: event.Configured}
		if msg == nil {
			st.State = event.Removed
			delete(n.has, key)
		} else if said, special := n.states[key]; special {
			st = said
		} else {
			n.has[key] = msg
		}
		done.Statuses = append(done.Statuses, st)
	}
	return done
}

// transactions returns the transactions so far and clears them.
func (n *node) transactions() []*event.Txn {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.txns
	n.txns = nil
	return out
}

func (n *node) note() *event.SyncStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.notes) == 0 {
		return &event.SyncStatus{}
	}
	return n.notes[len(n.notes)-1]
}

func (n *node) text() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]string{}
	for key, msg := range n.has {
		out[key] = format(msg)
	}
	return out
}

func format(m proto.Message) string { return protojson.MarshalOptions{}.Format(m) }
