package network

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns both ends of a new connection.
func pair(t *testing.T, n *Network) (client, server net.Conn) {
	t.Helper()
	client, err := n.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if server, err = n.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func read(c net.Conn) (string, error) {
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// Each fault has its effect, and ends.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		client, server := pair(t, n)
		expect := func(c net.Conn, text string, want error, after time.Duration) {
			t.Helper()
			began := time.Now()
			if got, err := read(c); got != text || !errors.Is(err, want) || time.Since(began) != after {
				t.Errorf("%q, %v after %s; want %q, %v after %s", got, err, time.Since(began), text, want, after)
			}
		}
		write(t, client, "a")
		expect(server, "a", nil, 0)
		n.Change(func(f *Faults) { f.Slow = time.Second })
		write(t, server, "b")
		n.Change(func(f *Faults) { f.Slow = 0 })
		write(t, server, "c")
		expect(client, "b", nil, time.Second)
		expect(client, "c", nil, 0)
		n.Change(func(f *Faults) { f.Hung++ })
		write(t, client, "d")
		time.AfterFunc(time.Minute, func() { n.Change(func(f *Faults) { f.Hung-- }) })
		expect(server, "d", nil, time.Minute)
		if err := client.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		expect(client, "", os.ErrDeadlineExceeded, time.Second)
		write(t, server, "lost")
		n.Change(func(f *Faults) { f.Cut++ })
		expect(client, "", syscall.ECONNRESET, 0)
		expect(server, "", syscall.ECONNRESET, 0)
		if _, err := n.Dial(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		n.Change(func(f *Faults) { f.Cut-- })
		client, server = pair(t, n)
		write(t, client, "last")
		_ = client.Close()
		expect(server, "last", nil, 0)
		expect(server, "", io.EOF, 0)
		if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	})
}

// A dead connection delivers the rest and then nothing, to both ends and for ever. Its ends do not learn of it. Other connections of the network are whole.
func TestDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		client, server := pair(t, n)
		silent := func(c net.Conn) {
			t.Helper()
			if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if got, err := read(c); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q, %v", got, err)
			}
		}
		n.Change(func(f *Faults) { f.Dead, f.Rest = f.Dead+1, 3 })
		late, lateServer := pair(t, n)
		for _, c := range []net.Conn{client, server, late, lateServer} {
			write(t, c, "abcde")
		}
		for _, c := range []net.Conn{client, server, late, lateServer} {
			if got, err := read(c); got != "abc" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			silent(c)
		}
		short, shortServer := pair(t, n)
		n.Change(func(f *Faults) { f.Dead-- })
		write(t, short, "after the fault")
		silent(shortServer)
		n.Sever()
		_ = client.Close()
		silent(server)
		write(t, server, "f")
		silent(late)
		client, server = pair(t, n)
		write(t, client, "whole")
		if got, err := read(server); got != "whole" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// A write waits until the other end has read.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		client, server := pair(t, n)
		sent := bytes.Repeat([]byte("0123456789"), window/4)
		done := make(chan error)
		go func() {
			_, err := client.Write(sent)
			_ = client.Close()
			done <- err
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("the write did not wait")
		default:
		}
		n.Change(func(f *Faults) { f.Thin++ })
		_, err := io.CopyN(io.Discard, server, window-thin)
		synctest.Wait()
		if held := server.(*end).size; err != nil || held != thin {
			t.Errorf("a thin network holds %d bytes, %v", held, err)
		}
		sent = sent[window-thin:]
		got, err := io.ReadAll(server)
		if werr := <-done; err != nil || werr != nil || !bytes.Equal(got, sent) {
			t.Error(len(got), err, werr)
		}
	})
}

// net/http serves over the network, and its connections end with it.
func TestHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(n) }()
		transport := &http.Transport{DialContext: n.DialAddress}
		resp, err := (&http.Client{Transport: transport}).Get("http://server/")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); string(text) != "hello" || err != nil {
			t.Error(string(text), err)
		}
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// A joint listener accepts from all its networks, each with its faults, until it is closed; the next one takes its place.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := New(), New()
		dial := func(n *Network) error {
			_, err := n.Dial(t.Context())
			return err
		}
		j := Join(a, b)
		a.Change(func(f *Faults) { f.Cut++ })
		if err := dial(a); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		if err := dial(b); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Accept(); err != nil {
			t.Error(err)
		}
		go func() { _ = j.Close() }()
		if _, err := j.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := dial(b); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		j = Join(a, b)
		if err := dial(b); err != nil {
			t.Error(err)
		}
		if _, err := j.Accept(); err != nil {
			t.Error(err)
		}
	})
}
