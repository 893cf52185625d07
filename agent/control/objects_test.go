package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/recorder/record"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// guestbook are the objects of the example, sorted, without their files.
func guestbook(t testing.TB) (out []event.Change) {
	t.Helper()
	changes, err := manifest.Load("../../examples/guestbook")
	if err != nil || len(changes) < 20 {
		t.Fatal(len(changes), err)
	}
	for _, ch := range changes {
		if ch.Object != nil {
			out = append(out, event.Change{Ref: ch.Ref, Object: ch.Object})
		}
	}
	return out
}

// served serves an agent's socket until the test ends.
func served(t testing.TB, s *Server) (socket string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	l, err := httpserver.Unix(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- httpserver.HTTP(ctx, l, s.Handler(), slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() { cancel(); <-ended })
	return at
}

func objectsOf(changes []event.Change) (out []model.Object) {
	for _, ch := range changes {
		out = append(out, ch.Object)
	}
	return out
}

// The client has the same objects as the agent, whatever their order in the agent is.
func TestObjectsArriveAsTheyAre(t *testing.T) {
	want := guestbook(t)
	list := objectsOf(want)
	for range 2 {
		got, err := FetchObjects(t.Context(), served(t, &Server{Objects: func(context.Context) (*Objects, error) { return &Objects{"node-1", list}, nil }}))
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(want, func(a, b event.Change) int { return a.Ref.Compare(b.Ref) })
		for i := range want {
			if i >= len(got) || !reflect.DeepEqual(want[i], got[i]) {
				t.Fatalf("object %d of %d: the agent has %+v", i, len(got), want[i])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d objects, the agent has %d", len(got), len(want))
		}
		list = append(list[1:], list[0])
	}
}

// Errors of the agent keep their text. A third client at the same time gets one.
func TestObjectsThatTheAgentDoesNotServe(t *testing.T) {
	for _, tc := range []struct {
		server *Server
		want   string
	}{
		{&Server{}, "this agent serves no objects"},
		{&Server{Objects: func(context.Context) (*Objects, error) { return nil, errors.New("source kube is in state resync") }}, "source kube is in state resync"},
	} {
		if _, err := FetchObjects(t.Context(), served(t, tc.server)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	began, end := make(chan struct{}), make(chan struct{})
	at := served(t, &Server{Objects: func(context.Context) (*Objects, error) {
		began <- struct{}{}
		<-end
		return &Objects{}, nil
	}})
	ended := make(chan error, mostReaders)
	for range mostReaders {
		go func() { _, err := FetchObjects(t.Context(), at); ended <- err }()
		<-began
	}
	if _, err := FetchObjects(t.Context(), at); err == nil || !strings.Contains(err.Error(), "2 clients read objects") {
		t.Error(err)
	}
	close(end)
	for range mostReaders {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	go func() { <-began }()
	if _, err := FetchObjects(t.Context(), at); err != nil {
		t.Errorf("after the others: %v", err)
	}
}

// An answer that is cut, damaged or of another version is an error, never fewer objects.
func TestObjectsAreCompleteOrAnError(t *testing.T) {
	list := objectsOf(guestbook(t))
	rec := httptest.NewRecorder()
	s := &Server{Objects: func(context.Context) (*Objects, error) { return &Objects{"node-1", list}, nil }}
	s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/objects", nil))
	whole := rec.Body.Bytes()
	if got, err := readObjects(bytes.NewReader(whole)); err != nil || len(got) != len(list) {
		t.Fatal(len(got), err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	other := record.HeaderLine(&record.Header{Format: record.Format + 1})
	for name, text := range map[string][]byte{
		"nothing":        nil,
		"cut in a line":  whole[:len(whole)-3],
		"without a line": bytes.Join(append(append([][]byte{}, lines[:3]...), lines[4:]...), nil),
		"no header":      bytes.Join(lines[1:], nil),
		"another format": append(other.AppendTo(nil), bytes.Join(lines[1:], nil)...),
		"damaged":        bytes.Replace(whole, []byte("guestbook"), []byte("guestb00k"), 1),
		"a page":         []byte("<html>\n"),
	} {
		if got, err := readObjects(bytes.NewReader(text)); err == nil || got != nil {
			t.Errorf("%s: %d objects, %v", name, len(got), err)
		}
	}
}

// BenchmarkObjects: a client reads the objects of 1,000 pods behind 200 Services.
func BenchmarkObjects(b *testing.B) {
	var list []model.Object
	for i := range 1000 {
		list = append(list, &model.Pod{ID: model.PodID{Namespace: fmt.Sprintf("team-%d", i%40), Name: fmt.Sprintf("web-%d", i)}, Labels: map[string]string{"app": "web", "tier": "front"}})
	}
	for i := range 200 {
		list = append(list, &model.Service{ID: model.ServiceID{Namespace: fmt.Sprintf("team-%d", i%40), Name: fmt.Sprintf("web-%d", i)}})
	}
	at := served(b, &Server{Objects: func(context.Context) (*Objects, error) { return &Objects{"node-1", list}, nil }})
	b.ReportAllocs()
	for b.Loop() {
		if got, err := FetchObjects(b.Context(), at); err != nil || len(got) != len(list) {
			b.Fatal(len(got), err)
		}
	}
}
