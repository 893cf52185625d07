package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func namespaces(names ...string) (out []Object) {
	for _, name := range names {
		o := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		out = append(out, o)
	}
	return out
}

func service(name, clusterIP string) Object {
	o := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	o.Spec.ClusterIP = clusterIP
	return o
}

// asker is a client without client-go.
type asker struct {
	*testing.T
	*Client
}

// ask makes a request, and returns the code, or 0 and the error.
func (a *asker) ask(path string) (int, io.ReadCloser, error) {
	a.Helper()
	req, err := http.NewRequestWithContext(a.Context(), http.MethodGet, "http://server"+path, nil)
	if err != nil {
		a.Fatal(err)
	}
	resp, err := a.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, resp.Body, nil
}

// read returns an answer and its body.
func (a *asker) read(path string) (int, string) {
	a.Helper()
	code, body, err := a.ask(path)
	if err != nil {
		return 0, err.Error()
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return code, string(text) + err.Error()
	}
	return code, string(text)
}

// event is what a watch sends, as "ADDED name@version".
type event struct {
	Type   string
	Object struct {
		Metadata metav1.ObjectMeta
		Code     int
	}
}

// next returns the next event of a watch and how long it took; "end" and the error at the end.
func next(r *bufio.Reader) (string, time.Duration) {
	began := time.Now()
	line, err := r.ReadString('\n')
	took := time.Since(began)
	var ev event
	switch {
	case err != nil:
		return "end: " + err.Error(), took
	case json.Unmarshal([]byte(line), &ev) != nil:
		return "not JSON: " + line, took
	case ev.Object.Code != 0:
		return ev.Type + " " + http.StatusText(ev.Object.Code), took
	}
	return strings.TrimSpace(ev.Type + " " + ev.Object.Metadata.Name + "@" + ev.Object.Metadata.ResourceVersion), took
}

// inBubble runs a test with a server that has two namespaces, at the revisions 101 and 102.
func inBubble(t *testing.T, seed uint64, f func(*Server, *asker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(seed)
		if err := s.Set(namespaces("a", "b")); err != nil {
			t.Fatal(err)
		}
		f(s, &asker{t, s.Client(1)})
		s.EndWatches(true)
	})
}

const path = "/api/v1/namespaces"

func (a *asker) watch(query string) *bufio.Reader {
	a.Helper()
	code, body, err := a.ask(path + "?watch=true&" + query)
	if err != nil || code != http.StatusOK {
		a.Fatal(code, err)
	}
	return bufio.NewReader(body)
}

func (a *asker) expect(r *bufio.Reader, events ...string) {
	a.Helper()
	for _, want := range events {
		if got, _ := next(r); got != want {
			a.Errorf("%s, want %s", got, want)
		}
	}
}

// A list, and a watch from its version, have everything; bookmarks keep versions young, and a watch ends when the client wants.
func TestListAndWatch(t *testing.T) {
	inBubble(t, 1, func(s *Server, a *asker) {
		code, text := a.read(path + "?resourceVersion=0")
		if want := `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"102"},"items":[{`; code != http.StatusOK || !strings.HasPrefix(text, want) {
			t.Fatalf("%d %s, want %s", code, text, want)
		}
		w := a.watch("resourceVersion=102&allowWatchBookmarks=true&timeoutSeconds=150")
		if err := s.Set(append(namespaces("b", "c"), service("x", "10.96.0.1"))); err != nil {
			t.Fatal(err)
		}
		first, took := next(w)
		second, _ := next(w)
		both := first + second
		if !strings.Contains(both, "DELETED a@") || !strings.Contains(both, "ADDED c@") || took > latency {
			t.Errorf("%s after %s", both, took)
		}
		a.expect(w, "BOOKMARK @105", "BOOKMARK @105", "end: EOF")
	})
}

func TestSelectors(t *testing.T) {
	inBubble(t, 1, func(s *Server, a *asker) {
		set := func(ip string) {
			if err := s.Set([]Object{service("x", ip)}); err != nil {
				t.Fatal(err)
			}
		}
		set("None")
		const services = "/api/v1/services?fieldSelector=spec.clusterIP!%3DNone&resourceVersion="
		if _, text := a.read(services + "0"); !strings.Contains(text, `"items":[]`) {
			t.Error(text)
		}
		_, body, err := a.ask(services + "105&watch=true")
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewReader(body)
		for _, step := range [][2]string{{"10.96.0.1", "ADDED x@106"}, {"10.96.0.2", "MODIFIED x@107"}, {"None", "DELETED x@108"}} {
			set(step[0])
			a.expect(w, step[1])
		}
		_ = body.Close()
		a.expect(w, "end: "+http.ErrBodyReadAfterClose.Error())
	})
}

func TestStreamedList(t *testing.T) {
	query := "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	inBubble(t, 1, func(_ *Server, a *asker) {
		w := a.watch(query)
		first, _ := next(w)
		second, _ := next(w)
		if both := first + second; !strings.Contains(both, "ADDED a@") || !strings.Contains(both, "ADDED b@") {
			t.Error(both)
		}
		if line, _ := w.ReadString('\n'); !strings.Contains(line, metav1.InitialEventsAnnotationKey) || !strings.Contains(line, `"resourceVersion":"102"`) {
			t.Error(line)
		}
	})
	inBubble(t, 4, func(_ *Server, a *asker) { // an older server
		if code, text := a.read(path + "?watch=true&" + query); code != http.StatusUnprocessableEntity {
			t.Error(code, text)
		}
	})
}

// Each fault has its effect, and ends.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end func(*Server)
		check      func(*testing.T, *asker, *bufio.Reader) // w watches from 102
	}{
		"cut": {
			func(s *Server) { s.Change(func(f *Faults) { f.Cut++ }) }, func(s *Server) { s.Change(func(f *Faults) { f.Cut-- }) },
			func(t *testing.T, a *asker, w *bufio.Reader) {
				_, _, err := a.ask(path)
				if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
					t.Error(err)
				}
				a.expect(w, "end: unexpected EOF")
			},
		},
		"empty": {
			func(s *Server) { s.Change(func(f *Faults) { f.Empty++ }) }, func(s *Server) { s.Change(func(f *Faults) { f.Empty-- }) },
			func(t *testing.T, a *asker, w *bufio.Reader) {
				if _, text := a.read(path); !strings.Contains(text, `"resourceVersion":"104"},"items":[]`) {
					t.Error(text)
				}
				if first, _ := next(w); !strings.HasPrefix(first, "DELETED ") {
					t.Error(first)
				}
			},
		},
		"slow": {
			func(s *Server) { s.Change(func(f *Faults) { f.Slow = time.Hour }) }, func(s *Server) { s.Change(func(f *Faults) { f.Slow = 0 }) },
			func(t *testing.T, a *asker, _ *bufio.Reader) {
				began := time.Now()
				if code, _ := a.read(path); code != http.StatusOK || time.Since(began) < time.Second {
					t.Error(code, time.Since(began))
				}
			},
		},
		"errors": {
			func(s *Server) { s.Change(func(f *Faults) { f.Errors = 1000 }) }, func(s *Server) { s.Change(func(f *Faults) { f.Errors = 0 }) },
			func(t *testing.T, a *asker, _ *bufio.Reader) {
				if code, text := a.read(path); code < 429 || !strings.Contains(text, `"kind":"Status"`) {
					t.Error(code, text)
				}
			},
		},
		"torn": {
			func(s *Server) { s.Change(func(f *Faults) { f.Torn++ }) }, func(s *Server) { s.Change(func(f *Faults) { f.Torn-- }) },
			func(t *testing.T, a *asker, w *bufio.Reader) {
				if err := a.server.Set(namespaces("a", "b", "c")); err != nil {
					t.Fatal(err)
				}
				if line, err := w.ReadString('\n'); line == "" || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Error(line, err)
				}
				torn := 0
				for range 20 {
					if _, text := a.read(path); strings.HasSuffix(text, io.ErrUnexpectedEOF.Error()) {
						torn++
					}
				}
				if torn == 0 || torn == 20 {
					t.Errorf("%d of 20 lists are torn", torn)
				}
				torn = 0
				for range 20 {
					text, err := io.ReadAll(a.watch("allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"))
					if errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(string(text), metav1.InitialEventsAnnotationKey) {
						torn++
					}
				}
				if torn == 0 || torn == 20 {
					t.Errorf("%d of 20 streamed lists are torn", torn)
				}
			},
		},
		"few": {
			func(s *Server) { s.Change(func(f *Faults) { f.Few++ }) }, func(s *Server) { s.Change(func(f *Faults) { f.Few-- }) },
			func(t *testing.T, a *asker, w *bufio.Reader) {
				if code, text := a.read(path + "?watch=true&resourceVersion=102"); code != http.StatusTooManyRequests {
					t.Error(code, text)
				}
				if code, text := a.read(path); code != http.StatusOK {
					t.Error(code, text)
				}
				if err := a.server.Set(namespaces("a", "b", "c")); err != nil {
					t.Fatal(err)
				}
				a.expect(w, "ADDED c@103")
			},
		},
		"expired": {
			(*Server).Expire, func(*Server) {},
			func(_ *testing.T, a *asker, w *bufio.Reader) {
				a.expect(w, "ERROR Gone", "end: EOF")
				a.expect(a.watch("resourceVersion=102"), "ERROR Gone")
			},
		},
		"behind": {
			(*Server).FallBehind, func(s *Server) { s.Change(func(f *Faults) { f.Behind-- }) },
			func(t *testing.T, a *asker, w *bufio.Reader) {
				a.expect(w, "end: unexpected EOF")
				for query, want := range map[string]string{"?resourceVersion=0": `"resourceVersion":"100"},"items":[]`, "": `"resourceVersion":"102"},"items":[{`, "?resourceVersion=102": "Too large"} {
					if _, text := a.read(path + query); !strings.Contains(text, want) {
						t.Errorf("%s: %s, want %s", query, text, want)
					}
				}
				old := a.watch("resourceVersion=100")
				time.AfterFunc(time.Second, func() { a.server.Change(func(f *Faults) { f.Behind-- }) })
				if got, _ := next(old); !strings.HasPrefix(got, "ADDED ") {
					t.Error(got)
				}
				a.server.FallBehind() // for end
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(s *Server, a *asker) {
				w := a.watch("resourceVersion=102")
				c.begin(s)
				c.check(a.T, a, w)
				c.end(s)
				if code, text := a.read(path); code != http.StatusOK || !strings.Contains(text, `"name":"a"`) || !json.Valid([]byte(text)) {
					t.Errorf("afterwards: %d %s", code, text)
				}
			})
		})
	}
}

func TestDiscovery(t *testing.T) {
	inBubble(t, 1, func(_ *Server, a *asker) {
		if code, text := a.read("/apis/projectcalico.org/v3"); code != http.StatusOK || !strings.Contains(text, `"name":"tiers"`) {
			t.Error(code, text)
		}
		for _, p := range []string{"/apis/crd.projectcalico.org/v1", "/apis/projectcalico.org/v3/colours"} {
			if code, text := a.read(p); code != http.StatusNotFound {
				t.Error(p, code, text)
			}
		}
	})
}

// watchUnder begins a watch of another client.
func watchUnder(ctx context.Context, t *testing.T, s *Server) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+path+"?watch=true&resourceVersion=102", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client(2).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// A watch ends with its client.
func TestClientLeaves(t *testing.T) {
	inBubble(t, 1, func(s *Server, a *asker) {
		ctx, leave := context.WithCancel(a.Context())
		resp := watchUnder(ctx, t, s)
		leave()
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) || len(s.watching) != 0 {
			t.Error(err, len(s.watching))
		}
	})
}

// A watch that has ended leaves nothing with its client's context, which lives as long as the agent.
func TestEndedWatchIsForgotten(t *testing.T) {
	inBubble(t, 1, func(s *Server, a *asker) {
		ctx := &counted{Context: a.Context()}
		resp := watchUnder(ctx, t, s)
		if ctx.waiting.Load() != 1 {
			t.Error("the watch does not follow its context")
		}
		if _, err := io.ReadAll(resp.Body); err != nil || ctx.waiting.Load() != 0 {
			t.Errorf("%v, %d functions wait for the context's end", err, ctx.waiting.Load())
		}
	})
}

// counted is a context that counts the functions of context.AfterFunc that wait.
type counted struct {
	context.Context
	waiting atomic.Int32
}

// AfterFunc implements what context.AfterFunc looks for.
func (c *counted) AfterFunc(f func()) func() bool {
	stop := context.AfterFunc(c.Context, f)
	c.waiting.Add(1)
	return sync.OnceValue(func() bool {
		c.waiting.Add(-1)
		return stop()
	})
}

// Value hides the context within, which would be asked instead.
func (*counted) Value(any) any { return nil }

// A policy without types gets them.
func TestTypesOfPolicies(t *testing.T) {
	for _, c := range [][3]string{
		{"types", `{}`, `{"types":["Ingress"]}`},
		{"types", `{"egress":[{}]}`, `{"types":["Egress"],"egress":[{}]}`},
		{"types", `{"ingress":[{}]}`, `{"types":["Ingress"],"ingress":[{}]}`},
		{"types", `{"ingress":[{}],"egress":[{}]}`, `{"types":["Ingress","Egress"],"ingress":[{}],"egress":[{}]}`},
		{"types", `{"types":["Egress"],"ingress":[{}]}`, `{"types":["Egress"],"ingress":[{}]}`},
		{"policyTypes", `{"egress":[{}]}`, `{"policyTypes":["Ingress","Egress"],"egress":[{}]}`},
		{"policyTypes", `{"policyTypes":["Egress"]}`, `{"policyTypes":["Egress"]}`},
	} {
		s := &stored{content: `{"spec":` + c[1] + `}`}
		if err := s.setTypes(c[0]); err != nil || s.content != `{"spec":`+c[2]+`}` {
			t.Errorf("%s: %s, %v", c[1], s.content, err)
		}
	}
}
