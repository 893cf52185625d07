package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Client is a client's connection to the server. It implements http.RoundTripper.
type Client struct {
	server *Server
	seed   uint64
	rand   *rand.Rand // under the server's mu
}

// Client returns a connection of a client, with its own latencies.
func (s *Server) Client(seed uint64) *Client {
	return &Client{s, seed, rand.New(rand.NewPCG(s.seed, seed))}
}

// Times of a server without a fault.
const (
	latency   = 300 * time.Millisecond // the longest of events
	freshness = 3 * time.Second        // how long a request waits for a cache that is behind
	bookmarks = time.Minute
)

// RoundTrip implements http.RoundTripper.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	s, ctx := c.server, req.Context()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Cut > 0 {
		if c.rand.IntN(2) == 0 {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		if err := s.sleep(ctx, freshness); err != nil {
			return nil, err
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
	}
	if d := s.faults.Slow; d > 0 {
		if err := s.sleep(ctx, time.Duration(c.rand.Int64N(int64(d)))); err != nil {
			return nil, err
		}
	}
	if c.rand.IntN(1000) < s.faults.Errors {
		return c.failure(), nil
	}
	return c.route(req)
}

// sleep waits without mu.
func (s *Server) sleep(ctx context.Context, d time.Duration) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// failure is an answer with one of the errors of a server in need.
func (c *Client) failure() *http.Response {
	switch c.rand.IntN(5) {
	case 0:
		resp := status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later")
		resp.Header.Set("Retry-After", "1")
		return resp
	case 1:
		return status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later")
	case 2:
		return status(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: leader changed")
	case 3:
		return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "apiserver is shutting down")
	}
	return status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "etcdserver: request timed out")
}

// status is an answer without an object.
func status(code int, reason metav1.StatusReason, text string, causes ...metav1.StatusCause) *http.Response {
	body, _ := json.Marshal(failureStatus(code, reason, text, causes...)) // has no value that JSON lacks
	return answer(code, body)
}

func failureStatus(code int, reason metav1.StatusReason, text string, causes ...metav1.StatusCause) *metav1.Status {
	out := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: text,
	}
	if len(causes) > 0 {
		out.Details = &metav1.StatusDetails{Causes: causes}
	}
	return out
}

func answer(code int, body []byte) *http.Response {
	return respond(code, io.NopCloser(bytes.NewReader(body)))
}

func respond(code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1,
	}
}

// route answers discovery, lists and watches.
func (c *Client) route(req *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	var r resource
	switch {
	case req.Method != http.MethodGet:
		return nil, fmt.Errorf("%s %s: the server only reads", req.Method, req.URL)
	case len(parts) == 3 && parts[0] == "apis":
		list := discovered(parts[1] + "/" + parts[2])
		if list == nil {
			return notFound(), nil
		}
		body, err := json.Marshal(list)
		return answer(http.StatusOK, body), err
	case len(parts) == 3 && parts[0] == "api":
		r = resource{parts[1], parts[2]}
	case len(parts) == 4 && parts[0] == "apis":
		r = resource{parts[1] + "/" + parts[2], parts[3]}
	}
	if r.kindOf() == "" {
		return notFound(), nil
	}
	q := req.URL.Query()
	chosen, err := selects(q.Get("labelSelector"), q.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	if q.Get("watch") == "" {
		return c.answerList(req.Context(), r, q, chosen)
	}
	return c.answerWatch(req.Context(), r, q, chosen)
}

func notFound() *http.Response {
	return status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

// tooLarge is the answer to a request for a revision that the cache does not reach in time.
func tooLarge() *http.Response {
	return status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Too large resource version", metav1.StatusCause{Type: metav1.CauseTypeResourceVersionTooLarge})
}

// answerList answers from the cache, except that a request without a version gets the newest state.
func (c *Client) answerList(ctx context.Context, r resource, q url.Values, chosen selection) (*http.Response, error) {
	s := c.server
	least, _ := strconv.Atoi(q.Get("resourceVersion")) // "" and 0: none
	if s.cached() < least {
		if err := s.sleep(ctx, freshness); err != nil {
			return nil, err
		}
		if s.cached() < least {
			return tooLarge(), nil
		}
	}
	revision := s.cached()
	if q.Get("resourceVersion") == "" {
		revision = s.revision
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`, r.kindOf(), r.apiVersion, revision)
	comma := ""
	for _, e := range s.asOf(r, revision) {
		if chosen.has(e.stored) {
			b.WriteString(comma)
			comma = ","
			e.at(&b, e.revision)
		}
	}
	b.WriteString("]}")
	if s.faults.Torn > 0 && c.rand.IntN(2) == 0 {
		return respond(http.StatusOK, io.NopCloser(io.MultiReader(bytes.NewReader(b.Bytes()[:b.Len()/2]), broken{}))), nil
	}
	return answer(http.StatusOK, b.Bytes()), nil
}

// broken is the rest of an answer whose connection is lost.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// answerWatch answers with a stream of events.
func (c *Client) answerWatch(ctx context.Context, r resource, q url.Values, chosen selection) (*http.Response, error) {
	s := c.server
	if s.faults.Few > 0 {
		return status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later"), nil
	}
	initial := q.Get("sendInitialEvents") == "true"
	from, err := strconv.Atoi(q.Get("resourceVersion"))
	switch {
	case initial && !s.streams:
		return status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch"), nil
	case q.Get("resourceVersion") == "" && initial:
		from = s.revision
	case err != nil:
		from = 0
	}
	t := newStream(ctx, c, r, chosen)
	if seconds, err := strconv.Atoi(q.Get("timeoutSeconds")); err == nil {
		t.until = time.Now().Add(s.longer * time.Duration(seconds) * time.Second)
	}
	t.bookmarks = q.Get("allowWatchBookmarks") == "true"
	switch {
	case initial:
		if s.cached() < from {
			if err := s.sleep(ctx, freshness); err != nil {
				return nil, err
			}
			if s.cached() < from {
				return tooLarge(), nil
			}
		}
		t.sendObjects()
		t.bookmark(fmt.Sprintf(`"annotations":{%q:"true"},`, metav1.InitialEventsAnnotationKey))
	case from == 0: // any version: all objects, and what follows
		t.sendObjects()
	case from < s.oldest:
		t.expired = true
	default:
		t.at = from
	}
	t.register()
	if initial && s.faults.Torn > 0 && c.rand.IntN(2) == 0 {
		t.tear()
	}
	return respond(http.StatusOK, t), nil
}
