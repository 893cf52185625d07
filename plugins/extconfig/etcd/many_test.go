package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

// crowd is an etcd with n interfaces, which it makes when they are read. Every bad'th is refused.
type crowd struct {
	n, bad  int
	largest int // page
	mtu     int
}

func (c *crowd) value(i int) pair {
	p := pair{key: fmt.Sprintf("%s%07d", loop, i), value: fmt.Appendf(nil, `{"name":"loop%07d","type":"SOFTWARE_LOOPBACK","enabled":true,"mtu":%d}`, i, c.mtu)}
	if c.bad > 0 && i%c.bad == 0 {
		p.value = []byte("?")
	}
	return p
}

func (c *crowd) Page(_ context.Context, from string, limit, _ int64) (*page, error) {
	i := 0
	if from != "" {
		last, err := strconv.Atoi(strings.TrimLeft(strings.TrimSuffix(strings.TrimPrefix(from, loop), "\x00"), "0") + "")
		if err != nil && !strings.HasSuffix(from, "0000000\x00") {
			return nil, err
		}
		i = last + 1
	}
	p := &page{rev: 7}
	for ; i < c.n && int64(len(p.pairs)) < limit; i++ {
		p.pairs = append(p.pairs, c.value(i))
	}
	p.more = i < c.n
	c.largest = max(c.largest, len(p.pairs))
	return p, nil
}

func (c *crowd) Watch(ctx context.Context, _ int64, _ func(int64, []pair)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (*crowd) Close() {}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestManyKeys: each stored key costs a bounded amount of memory, and reading all keys again costs little more.
func TestManyKeys(t *testing.T) {
	n := 20_000
	if s := os.Getenv("CONTIV_KEYS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	src, err := New(config())
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{n: n, bad: 10, mtu: 1500}
	src.dial = func(context.Context) (reader, error) { return c, nil }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	session := func() (took time.Duration) {
		began := time.Now()
		ended := make(chan error)
		once, stop := context.WithCancel(ctx)
		go func() {
			ended <- src.session(once, func() { took = time.Since(began); stop() })
		}()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return took
	}
	before := heap()
	took := session()
	first, _ := src.queue.nextEvent().(*event.External)
	if first == nil || !first.Resync || len(first.Values) != n-n/10 {
		t.Fatalf("%T", first)
	}
	for src.queue.nextEvent() != nil {
	}
	each := (heap() - before) / n
	t.Logf("%d keys: %s, %d bytes each", n, took.Round(time.Millisecond), each)
	if each > 1500 {
		t.Errorf("%d bytes for each key", each)
	}
	if c.largest != maxPage {
		t.Errorf("a page of %d", c.largest)
	}
	again := session()
	for ev := src.queue.nextEvent(); ev != nil; ev = src.queue.nextEvent() {
		if _, ok := ev.(*event.External); ok {
			t.Error("a change, though nothing differs")
		}
	}
	more := (heap() - before) / n
	t.Logf("once more: %s, %d bytes each", again.Round(time.Millisecond), more)
	if more > each+each/10 {
		t.Errorf("%d bytes for each key after reading again, %d before", more, each)
	}
	runtime.KeepAlive(first)
	if note := src.table.remark(); len(note) > 2000 || !strings.HasPrefix(note, fmt.Sprintf("%d of %d keys refused", n/10, n)) {
		t.Errorf("%d bytes: %.200s", len(note), note)
	}
	c.mtu = 1400 // everything differs
	session()
	if ev, _ := src.queue.nextEvent().(*event.External); ev == nil || ev.Resync || len(ev.Values) != n-n/10 {
		t.Errorf("all changed: %v", ev != nil)
	}
}
