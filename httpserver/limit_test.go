package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// crowd is a listener with one waiting client for each address in from.
type crowd struct {
	from []string
	ends []net.Conn // the clients' ends
}

type client struct {
	net.Conn
	at net.Addr
}

func (c client) RemoteAddr() net.Addr { return c.at }

func (c *crowd) Accept() (net.Conn, error) {
	if len(c.from) == 0 {
		return nil, net.ErrClosed
	}
	here, there := net.Pipe()
	c.ends = append(c.ends, there)
	ip := net.ParseIP(c.from[0])
	c.from = c.from[1:]
	if ip == nil {
		return client{here, &net.UnixAddr{}}, nil
	}
	return client{here, &net.TCPAddr{IP: ip}}, nil
}
func (c *crowd) Close() error   { return nil }
func (c *crowd) Addr() net.Addr { return &net.TCPAddr{} }

func accepted(l *limited) (out []net.Conn) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return out
		}
		out = append(out, conn)
	}
}

func repeat(host string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = host
	}
	return out
}

// One address gets maxConnsFrom connections, even if they stay open. A closed connection is subtracted once, however often
// it is closed.
func TestConnectionsAreLimited(t *testing.T) {
	c := &crowd{from: append(repeat("10.0.0.1", 100), "10.0.0.2")}
	l := limit(c)
	got := accepted(l)
	if len(got) != maxConnsFrom+1 {
		t.Fatalf("%d connections", len(got))
	}
	if _, err := c.ends[99].Read(make([]byte, 1)); err == nil {
		t.Error("one beyond the limit is open")
	}
	for range 2 {
		_ = got[0].Close()
	}
	c.from = repeat("10.0.0.1", 5)
	if again := accepted(l); len(again) != 1 {
		t.Errorf("%d connections in the place of one", len(again))
	}
	var all []string
	for i := range 1000 {
		all = append(all, net.IPv4(10, 1, byte(i>>8), byte(i)).String())
	}
	if got := accepted(limit(&crowd{from: all})); len(got) != maxConns {
		t.Errorf("%d connections of all", len(got))
	}
	if got := accepted(limit(&crowd{from: repeat("unix", 100)})); len(got) != 100 {
		t.Errorf("%d connections of a unix socket", len(got))
	}
}

// All time limits are set, and an error of net/http becomes one line of the JSON log.
func TestServerIsBounded(t *testing.T) {
	var b bytes.Buffer
	srv := server(http.NotFoundHandler(), slog.New(slog.NewJSONHandler(&b, nil)))
	for name, d := range map[string]time.Duration{
		"header": srv.ReadHeaderTimeout, "request": srv.ReadTimeout, "answer": srv.WriteTimeout, "idle": srv.IdleTimeout,
	} {
		if d <= 0 || d > 3*time.Minute {
			t.Errorf("%s: %s", name, d)
		}
	}
	if srv.MaxHeaderBytes <= 0 {
		t.Error("no limit of headers")
	}
	srv.ErrorLog.Printf("http: Accept error: %v; retrying in 5ms", "too many open files")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["level"] != "WARN" {
		t.Errorf("%v: %s", err, b.String())
	}
}

// HTTP enforces the connection limits.
func TestHTTPLimitsConnections(t *testing.T) {
	c := &crowd{from: repeat("10.0.0.1", maxConnsFrom+1)}
	if err := HTTP(t.Context(), c, http.NotFoundHandler(), nil); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := c.ends[maxConnsFrom].Write([]byte("GET")); err == nil {
		t.Error("one beyond the limit is read from")
	}
	if _, err := c.ends[0].Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); err != nil {
		t.Error(err)
	}
	answer, err := io.ReadAll(c.ends[0])
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 404")) {
		t.Errorf("%q, %v", answer, err)
	}
}

// SECURITY.md states the limits as the code has them.
func TestSecurityPageNamesTheLimits(t *testing.T) {
	page, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, want := range []string{
		fmt.Sprintf("take %d connections at a time, %d from one address", maxConns, maxConnsFrom),
		fmt.Sprintf("a request's header has %.0f s, the request %.0f s, the answer %.0f min, the next request %.0f min; a header has %d KiB",
			headerLimit.Seconds(), readLimit.Seconds(), answerLimit.Minutes(), idleLimit.Minutes(), headerBytes>>10),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("SECURITY.md does not say %q", want)
		}
	}
}
