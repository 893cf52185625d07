package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stream is the body of a watch's answer. Reads make its events.
type stream struct {
	client   *Client
	ctx      context.Context
	resource resource
	chosen   selection
	more     *sync.Cond // with the server's mu
	timer    *time.Timer
	forget   func() bool // the context, which may live longer
	until    time.Time   // end in order
	marked   time.Time   // of the last bookmark

	bookmarks bool
	expired   bool // the next event is 410 Gone
	at        int  // revision that the client has
	buf       bytes.Buffer
	err       error // of reads after buf
}

func newStream(ctx context.Context, c *Client, r resource, chosen selection) *stream {
	return &stream{client: c, ctx: ctx, resource: r, chosen: chosen, more: sync.NewCond(&c.server.mu), marked: time.Now(), until: time.Now().Add(time.Hour)}
}

// register registers the stream, under mu.
func (t *stream) register() {
	s := t.client.server
	s.watching[t] = true
	wake := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.more.Signal()
	}
	t.timer = time.AfterFunc(t.next(), wake)
	t.forget = context.AfterFunc(t.ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.end(t.ctx.Err())
	})
}

// next is the time until a bookmark or the end.
func (t *stream) next() time.Duration {
	return min(time.Until(t.marked.Add(t.pause())), time.Until(t.until))
}

// pause is the time between two bookmarks.
func (t *stream) pause() time.Duration { return bookmarks * t.client.server.longer }

// end ends the stream, under mu.
func (t *stream) end(err error) {
	if t.err == nil {
		t.err = err
	}
	t.timer.Stop()
	t.forget()
	delete(t.client.server.watching, t)
	t.more.Signal()
}

// Close implements io.Closer.
func (t *stream) Close() error {
	t.client.server.mu.Lock()
	defer t.client.server.mu.Unlock()
	t.end(http.ErrBodyReadAfterClose)
	return nil
}

// Read implements io.Reader.
func (t *stream) Read(b []byte) (int, error) {
	s := t.client.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for t.buf.Len() == 0 {
		if t.err != nil {
			return 0, t.err
		}
		if !t.fill() {
			t.more.Wait()
		}
	}
	return t.buf.Read(b)
}

// fill writes what the client does not have yet, or ends the stream when its time has come. It is false if there is nothing to do.
func (t *stream) fill() bool {
	s := t.client.server
	switch {
	case t.expired:
		t.writeEvent("ERROR", t.object(failureStatus(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")))
		t.end(io.EOF)
		return true
	case t.behind():
		if t.delay() {
			t.writeChanges()
		}
		return true
	case !time.Now().Before(t.until):
		t.end(io.EOF)
		return true
	case time.Since(t.marked) >= t.pause() && t.bookmarks:
		t.at = max(t.at, s.cached())
		t.bookmark("")
	}
	if time.Since(t.marked) >= t.pause() {
		t.marked = time.Now()
	}
	t.timer.Reset(t.next())
	return t.buf.Len() > 0
}

// behind reports whether there is an event for the client. Revisions without one are passed.
func (t *stream) behind() bool {
	s := t.client.server
	for _, c := range s.after(t.at) {
		if t.concerns(c) {
			return true
		}
	}
	return false
}

// after returns the changes after a revision that the cache has, under mu.
func (s *Server) after(revision int) []change {
	from := len(s.log)
	for from > 0 && s.log[from-1].revision > revision {
		from--
	}
	to := len(s.log)
	for to > from && s.log[to-1].revision > s.cached() {
		to--
	}
	return s.log[from:to]
}

func (t *stream) concerns(c change) bool {
	return c.key().resource == t.resource && (t.chosen.has(c.before) || t.chosen.has(c.after))
}

// delay waits for the latency of events, and is false if the stream ended meanwhile. All streams of a client have the same latency for a revision of the
// server: a client has objects of two versions for as long as it takes to read them.
func (t *stream) delay() bool {
	s := t.client.server
	d := time.Duration(1+rand.New(rand.NewPCG(t.client.seed, uint64(s.revision))).Int64N(int64(latency/time.Millisecond))) * time.Millisecond
	if slow := s.faults.Slow; slow > 0 {
		d += time.Duration(t.client.rand.Int64N(int64(slow)))
	}
	if err := s.sleep(t.ctx, d); err != nil {
		t.end(err)
	}
	return t.err == nil && !t.expired
}

// writeChanges writes the events that the client does not have.
func (t *stream) writeChanges() {
	s := t.client.server
	for _, c := range s.after(t.at) {
		t.at = c.revision
		if !t.concerns(c) {
			continue
		}
		kind, what := "MODIFIED", c.after
		switch {
		case !t.chosen.has(c.after):
			kind, what = "DELETED", c.after
			if what == nil {
				what = c.before
			}
		case !t.chosen.has(c.before):
			kind = "ADDED"
		}
		var b bytes.Buffer
		what.at(&b, c.revision)
		t.writeEvent(kind, b.Bytes())
	}
	if s.faults.Torn > 0 && t.buf.Len() > 0 {
		t.tear()
	}
}

// tear ends the stream in the middle of what the client has not read.
func (t *stream) tear() {
	t.buf.Truncate(t.buf.Len() / 2)
	t.end(io.ErrUnexpectedEOF)
}

// sendObjects writes all objects that the cache has.
func (t *stream) sendObjects() {
	s := t.client.server
	t.at = s.cached()
	for _, e := range s.asOf(t.resource, t.at) {
		if t.chosen.has(e.stored) {
			var b bytes.Buffer
			e.at(&b, e.revision)
			t.writeEvent("ADDED", b.Bytes())
		}
	}
}

func (t *stream) bookmark(annotations string) {
	t.writeEvent("BOOKMARK", fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{%s"resourceVersion":"%d"}}`, t.resource.kindOf(), t.resource.apiVersion, annotations, t.at))
}

func (t *stream) writeEvent(kind string, object []byte) {
	fmt.Fprintf(&t.buf, "{\"type\":%q,\"object\":%s}\n", kind, object)
}

func (t *stream) object(o any) []byte {
	text, _ := json.Marshal(o) // has no value that JSON lacks
	return text
}
