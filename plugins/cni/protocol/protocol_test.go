package protocol

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// full is a request with every field.
func full() Request {
	return Request{
		Attachment: Attachment{"c1", "eth0"}, Network: "contiv", Netns: "/run/netns/c1", Pod: Pod{"prod", "web-0", "u-1"}, MTU: 1400,
		PortMappings: []PortMapping{{80, 8080, "TCP", netip.MustParseAddr("192.0.2.1")}}, Bandwidth: &Bandwidth{1, 2, 3, 4},
		IPs:    []IP{{netip.MustParsePrefix("10.1.1.2/24"), netip.MustParseAddr("10.1.1.1")}, {Address: netip.MustParsePrefix("fd00::2/64")}},
		Routes: []Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), MTU: 1300}},
	}
}

// A record survives as it is; others do not harm it.
func TestSpool(t *testing.T) {
	s := Spool{Dir: filepath.Join(t.TempDir(), "a", "b")}
	if list, err := s.Read(time.Now()); len(list) > 0 || err != nil {
		t.Errorf("a folder that does not exist: %v, %v", list, err)
	}
	r := full()
	for range 2 {
		if err := s.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	// The unfinished file of a killed plugin, one of long ago, a file of another name, and a record in the place of another.
	young, old := filepath.Join(s.Dir, ".x.json.1.tmp"), filepath.Join(s.Dir, ".x.json.2.tmp")
	moved := s.Path(Attachment{"c2", "eth0"})
	text, _ := os.ReadFile(s.Path(r.Attachment))
	for path, content := range map[string][]byte{young: nil, old: nil, filepath.Join(s.Dir, "README"): nil, moved: text} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Now(), time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	list, err := s.Read(time.Now())
	if len(list) != 1 || !reflect.DeepEqual(list[0], r) || err == nil || !strings.Contains(err.Error(), "belongs to another file") {
		t.Errorf("%+v, %v", list, err)
	}
	for path, want := range map[string]bool{young: true, old: false, moved: false, moved + ".damaged": true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if list, err := s.Read(time.Now()); len(list) != 1 || err != nil {
		t.Errorf("read again: %+v, %v", list, err)
	}
	for range 2 {
		if err := s.Remove(r.Attachment); err != nil || s.Has(r.Attachment) {
			t.Error(err)
		}
	}
	r.ContainerID = "../../x"
	if err := s.Record(r); err == nil {
		t.Error("recorded a DEL of no container")
	}
}

// FuzzRecord decodes any bytes to a valid request, or to an error; a request survives both directions.
func FuzzRecord(f *testing.F) {
	text, _ := json.Marshal(full())
	f.Add(text)
	f.Add([]byte(`{"containerID":"c1","ifName":"eth0"}`))
	f.Add([]byte(`{"containerID":"c1","ifName":"eth0","ips":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if r2, err := parseRecord(again); err != nil || r2.Attachment != r.Attachment || r2.Netns != r.Netns {
			t.Fatalf("%s became %+v, %v", again, r2, err)
		}
	})
}

// Answers that are none become errors with a code; the plugin distinguishes an agent that is away from one that refuses.
func TestAnswers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var answer atomic.Value
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer.Load().(func(http.ResponseWriter))(w) }), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { _ = server.Serve(l); close(done) }()
	defer func() { _ = server.Close(); <-done }()
	c := Client{Socket: socket}
	for name, tc := range map[string]struct {
		answer   func(http.ResponseWriter)
		code     uint
		text     string
		noAnswer bool
	}{
		"another server": {func(w http.ResponseWriter) { http.NotFound(w, nil) }, CodeTryAgainLater, "contiv-agent serves no pods: its answer is 404", false},
		"a failure": {func(w http.ResponseWriter) {
			w.WriteHeader(500)
			_, _ = w.Write([]byte(`{"error":{"code":113,"msg":"m","details":"d"}}`))
		}, 113, "m: d", false},
		"no code":   {func(w http.ResponseWriter) { w.WriteHeader(500); _, _ = w.Write([]byte(`{"error":{"msg":"m"}}`)) }, CodeTryAgainLater, "500", false},
		"no result": {func(w http.ResponseWriter) { _, _ = w.Write([]byte("ok")) }, CodeDecoding, "answer of contiv-agent", false},
		"an end":    {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, CodeTryAgainLater, "the agent did not answer", true},
		"half an answer": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"ips":`))
			panic(http.ErrAbortHandler)
		}, CodeTryAgainLater, "", true},
	} {
		answer.Store(tc.answer)
		_, err := c.Add(t.Context(), full())
		var e *Error
		if !errors.As(err, &e) || e.Code != tc.code || !strings.Contains(err.Error(), tc.text) || errors.Is(err, ErrNoAnswer) != tc.noAnswer || errors.Is(err, ErrNoAgent) {
			t.Errorf("%s: %v (%+v)", name, err, e)
		}
	}
	gone := Client{Socket: socket + "-none"}
	if err := gone.Delete(t.Context(), full()); !errors.Is(err, ErrNoAgent) || errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
}
