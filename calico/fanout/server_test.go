package fanout

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// TestSnapshotAndChanges runs two clients, compressed and plain, from hello to end.
func TestSnapshotAndChanges(t *testing.T) {
	plain := hello("node-2")
	plain.SupportsDecoderRestart = false
	old := hello("node-3") // supports restarts but no compression
	old.SupportedCompressionAlgorithms = nil
	old.SyncerType = "" // as clients before 3.3
	for name, h := range map[string]wire.ClientHello{"snappy": hello("node-1"), "plain": plain, "old": old} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := serving(t, Config{Version: "v1"})
				want := map[string]string{}
				for i := range 2500 {
					key := fmt.Sprintf("/calico/v1/host/n/%d", i*7919%2500)
					want[key] = strings.Repeat(fmt.Sprint(i), 100)
					s.Publish(batchOf(wire.ResyncInProgress, kv(key, want[key])))
				}
				s.Publish(batchOf(wire.InSync))
				synctest.Wait()
				c := connected(t, l, h)
				if !c.server.SupportsNodeResourceUpdates || c.server.SyncerType != wire.Felix || c.server.Version != "v1" {
					t.Errorf("server's hello: %+v", c.server)
				}
				if err := c.until(func() bool { return c.status == wire.InSync }); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, c.keys); diff != "" {
					t.Fatalf("snapshot (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(map[wire.UpdateType]int{wire.New: 2500}, c.kinds); diff != "" {
					t.Errorf("update types (-want +got):\n%s", diff)
				}
				clear(c.kinds)
				s.Publish(batchOf(wire.InSync, kv("/a", "1"), kv("/a", "1"), kv("/a", "2"), wire.KV{Key: "/calico/v1/host/n/3"},
					wire.KV{Key: "/never/seen"}, kv("/z", "1")))
				if err := c.until(func() bool { return c.keys["/z"] != "" }); err != nil {
					t.Fatal(err)
				}
				delete(want, "/calico/v1/host/n/3")
				want["/a"], want["/z"] = "2", "1"
				if diff := cmp.Diff(want, c.keys); diff != "" {
					t.Fatalf("changes (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(map[wire.UpdateType]int{wire.New: 2, wire.Updated: 1, wire.Deleted: 2}, c.kinds); diff != "" {
					t.Errorf("equal values are not sent again, deletes always are (-want +got):\n%s", diff)
				}
				s.Publish(batchOf(wire.ResyncInProgress))
				if err := c.until(func() bool { return c.status == wire.ResyncInProgress }); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestOwnKeysReachOwnClientsOnly: only this program's clients receive /contiv/ keys. Where only such keys change, other clients receive
// nothing and are not behind.
func TestOwnKeysReachOwnClientsOnly(t *testing.T) {
	const key = wire.OwnKeys + "v1/servicecidrs/kubernetes"
	synctest.Test(t, func(t *testing.T) {
		s, l := serving(t, Config{})
		s.Publish(batchOf(wire.InSync, kv("/calico/v1/a", "1"), kv(key, "1")))
		synctest.Wait()
		ours, plain := hello("ours"), hello("plain")
		ours.Info, plain.SupportsDecoderRestart = wire.OwnInfo, false
		clients := map[string]*client{}
		for name, h := range map[string]wire.ClientHello{"ours": ours, "theirs": hello("theirs"), "plain": plain} {
			c := connected(t, l, h)
			clients[name] = c
			go func() { _ = c.until(func() bool { return false }) }()
		}
		check := func(when, own, theirs string) {
			t.Helper()
			time.Sleep(settle)
			synctest.Wait()
			for name, c := range clients {
				want := map[string]string{"/calico/v1/a": theirs}
				if name == "ours" && own != "" {
					want[key] = own
				}
				if diff := cmp.Diff(want, c.keys); diff != "" || c.kinds[wire.Deleted] > 0 && name != "ours" {
					t.Errorf("%s, %s (-want +got):\n%s", when, name, diff)
				}
			}
			for _, c := range s.allConns() {
				if late, size := c.measureLag(time.Now(), c.reached.Load()); late != 0 || size != 0 {
					t.Errorf("%s: %s is %s and %d bytes behind", when, c.host, late, size)
				}
			}
		}
		check("snapshot", "1", "1")
		s.Publish(batchOf(wire.InSync, kv(key, "2")))
		check("only ours", "2", "1")
		s.Publish(batchOf(wire.InSync, kv(key, "3"), kv("/calico/v1/a", "2")))
		check("both", "3", "2")
		s.Publish(batchOf(wire.InSync, wire.KV{Key: key}))
		check("ours is gone", "", "2")
		if st := s.Status(); st[1].Keys != "felix" || st[1].Count != 1 {
			t.Errorf("status: %+v", st)
		}
	})
}

// TestInSyncIsLast: the status in-sync is sent after everything that the source sent before it.
func TestInSyncIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serving(t, Config{})
		c := connected(t, l, hello("n"))
		if err := c.until(func() bool { return len(c.keys) == 0 && c.dec != nil && c.server.ServerConnID != 0 }); err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := range 1234 {
				s.Publish(batchOf(wire.ResyncInProgress, kv(fmt.Sprint("/", i), "v")))
			}
			s.Publish(batchOf(wire.InSync))
		}()
		if err := c.until(func() bool { return c.status == wire.InSync }); err != nil {
			t.Fatal(err)
		}
		if len(c.keys) != 1234 {
			t.Errorf("in sync with %d keys of 1234", len(c.keys))
		}
	})
}

// TestMessagesAreShort: no message of changes holds more than 100 KVs.
func TestMessagesAreShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serving(t, Config{})
		s.Publish(batchOf(wire.InSync))
		synctest.Wait()
		c := connected(t, l, hello("n"))
		if err := c.until(func() bool { return c.status == wire.InSync }); err != nil {
			t.Fatal(err)
		}
		c.onKVs = func(kvs []wire.KV) {
			if len(kvs) > 100 {
				t.Errorf("%d changes in one message", len(kvs))
			}
		}
		var kvs []wire.KV
		for i := range 950 {
			kvs = append(kvs, kv(fmt.Sprint("/", i), "v"))
		}
		s.Publish(batchOf(wire.InSync, kvs...))
		if err := c.until(func() bool { return len(c.keys) == 950 }); err != nil {
			t.Fatal(err)
		}
	})
}

// gone waits until the server closes the connection.
func gone(conn net.Conn) error {
	_, err := io.Copy(io.Discard, conn)
	return err
}

func TestRawConnections(t *testing.T) {
	unknown := hello("n")
	unknown.SyncerType = "nonsense"
	send := func(b []byte) func(net.Conn) { return func(c net.Conn) { _, _ = c.Write(b) } }
	say := func(ms ...wire.Message) func(net.Conn) {
		return func(c net.Conn) {
			enc := wire.NewEncoder(c)
			for _, m := range ms {
				if enc.Encode(m) != nil {
					return
				}
			}
		}
	}
	half := wire.AppendMessage(wire.AppendDefinitions(nil, wire.ClientHello{}), hello("n"))
	for _, c := range []struct {
		name   string
		do     func(net.Conn)
		within time.Duration // 0: at once
	}{
		{"silent", func(net.Conn) {}, 10 * time.Second},
		{"half a hello", send(half[:len(half)-7]), 10 * time.Second},
		{"half a definition", send(half[:9]), 10 * time.Second},
		{"garbage", send([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 50))), 0},
		{"zeros", send(make([]byte, 100)), 0},
		{"a hello of a gigabyte", send([]byte{0xfc, 0x40, 0, 0, 0}), 0},
		{"a hello beyond the limit", say(wire.ClientHello{Info: strings.Repeat("x", helloLimit)}), 0},
		{"a pong for a hello", say(wire.Pong{}), 0},
		{"unknown syncer", say(unknown), 0},
		{"never an ACK", say(hello("n")), 60 * time.Second},
		{"a pong for an ACK", say(hello("n"), wire.Pong{}), 0},
		{"one ACK, then never", say(hello("n"), wire.ACK{}), 60 * time.Second},
		{"a second hello", say(hello("n"), hello("n")), 0},
		{"a pong nobody asked for", say(hello("n"), wire.ACK{}, wire.ACK{}, wire.Pong{}), 0},
		{"a third ACK", say(hello("n"), wire.ACK{}, wire.ACK{}, wire.ACK{}), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := serving(t, Config{})
				s.Publish(batchOf(wire.InSync, kv("/k", "v")))
				synctest.Wait()
				conn, err := l.dial()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				began := time.Now()
				go c.do(conn)
				if err := gone(conn); err != nil && !errors.Is(err, io.ErrClosedPipe) {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.within || took > c.within+2*time.Second {
					t.Errorf("closed after %s, want about %s", took, c.within)
				}
				_ = conn.Close()
				synctest.Wait()
				if n := len(s.allConns()); n != 0 {
					t.Errorf("%d connections are left", n)
				}
				// All other clients are served as before.
				good := connected(t, l, hello("good"))
				if err := good.until(func() bool { return good.status == wire.InSync }); err != nil || good.keys["/k"] != "v" {
					t.Errorf("a good client after it: %v, keys %v", err, good.keys)
				}
			})
		})
	}
}

func TestNeverPongs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serving(t, Config{})
		s.Publish(batchOf(wire.InSync))
		good, bad := connected(t, l, hello("good")), connected(t, l, hello("bad"))
		bad.mute = true
		began := time.Now()
		ended := make(chan error)
		go func() { ended <- good.until(func() bool { return false }) }()
		if err := bad.until(func() bool { return false }); !errors.Is(err, io.EOF) {
			t.Errorf("mute client: %v", err)
		}
		if took := time.Since(began); took < 60*time.Second || took > 75*time.Second {
			t.Errorf("let go after %s", took)
		}
		time.Sleep(10 * time.Minute)
		if n := len(s.allConns()); n != 1 {
			t.Errorf("%d connections, want the one that pongs", n)
		}
		_ = good.conn.Close()
		<-ended
	})
}

// TestSlowClientIsDisconnected: the server disconnects a slow client, which delays no other.
func TestSlowClientIsDisconnected(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		within time.Duration
	}{
		{"too long", Config{WriteWithin: time.Hour}, 300 * time.Second},
		{"too long, after its grace", Config{WriteWithin: time.Hour, MaxBehind: time.Minute}, 300 * time.Second},
		{"too long, without grace", Config{WriteWithin: time.Hour, MaxBehind: time.Minute, Grace: 1}, 60 * time.Second},
		{"too much", Config{WriteWithin: time.Hour, MaxBehindBytes: 1 << 16}, 0},
		{"one write", Config{}, 120 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := serving(t, c.cfg)
				s.Publish(batchOf(wire.InSync))
				quick, slow := connected(t, l, hello("quick")), connected(t, l, hello("slow"))
				go func() { _ = quick.until(func() bool { return false }) }()
				if err := slow.until(func() bool { return slow.status == wire.InSync }); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				slow.mute = true
				for i := range 100 { // from here on the slow pipe is not read
					s.Publish(batchOf(wire.InSync, kv(fmt.Sprint("/", i), strings.Repeat("x", 1000))))
				}
				for len(s.allConns()) == 2 && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
				}
				if took := time.Since(began); took < c.within || took > c.within+5*time.Second {
					t.Errorf("let go after %s, want %s", took, c.within)
				}
				synctest.Wait()
				if len(quick.keys) != 100 {
					t.Errorf("the quick client has %d keys of 100", len(quick.keys))
				}
				_ = quick.conn.Close()
			})
		})
	}
}

func TestFloodOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serving(t, Config{MaxConnections: 50})
		s.Publish(batchOf(wire.InSync, kv("/k", "v")))
		refused := 0
		for range 500 {
			conn, err := l.dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				refused++
			}
		}
		if refused != 450 {
			t.Errorf("%d of 500 refused at 50", refused)
		}
		time.Sleep(11 * time.Second)
		c := connected(t, l, hello("n"))
		if err := c.until(func() bool { return c.status == wire.InSync }); err != nil {
			t.Error(err)
		}
	})
}

func TestDrain(t *testing.T) {
	for _, drain := range []time.Duration{0, 5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New(Config{Syncers: wire.SyncerTypes(), Drain: drain})
			if err != nil {
				t.Fatal(err)
			}
			l, ended := newPipes(), make(chan error, 1)
			ctx, stop := context.WithCancel(t.Context())
			go func() { ended <- s.Serve(ctx, l) }()
			s.Publish(batchOf(wire.InSync))
			for i := range 20 {
				c := connected(t, l, hello(fmt.Sprint("n", i)))
				go func() { _ = c.until(func() bool { return false }) }()
			}
			time.Sleep(time.Second)
			began := time.Now()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			want := min(drain, 20*time.Second)
			if took := time.Since(began); took != want {
				t.Errorf("drain of %s took %s, want %s", drain, took, want)
			}
			if _, err := l.dial(); err == nil {
				t.Error("still accepts")
			}
		})
	}
}

// TestSlowSnapshotDelaysNoOther: a client that does not read its snapshot holds its place for at most a second.
func TestSlowSnapshotDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := serving(t, Config{Snapshots: 1})
		s.Publish(batchOf(wire.InSync, kv("/k", "v")))
		synctest.Wait()
		slow := connected(t, l, hello("slow"))
		if err := slow.step(); err != nil { // the restart; after the ACK the client reads nothing
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		began := time.Now()
		quick := connected(t, l, hello("quick"))
		if err := quick.until(func() bool { return quick.status == wire.InSync }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*snapshotLease {
			t.Errorf("in sync after %s", took)
		}
	})
}

// Without TLS the server listens on loopback only, unless configured otherwise. It closes a refused listener.
func TestPlaintextStaysOnLoopback(t *testing.T) {
	for _, c := range []struct {
		at   string
		cfg  Config
		want error
	}{
		{"127.0.0.1:0", Config{}, nil},
		{"0.0.0.0:0", Config{}, ErrPlaintext},
		{":0", Config{}, ErrPlaintext},
		{":0", Config{Insecure: true}, nil},
		{":0", Config{TLS: &tls.Config{}}, nil},
	} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", c.at)
		if err != nil {
			t.Fatal(err)
		}
		c.cfg.Syncers = []wire.SyncerType{wire.Felix}
		s, err := New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Serve(ctx, l); !errors.Is(err, c.want) {
			t.Errorf("%s %+v: %v, want %v", c.at, c.cfg, err, c.want)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: still open: %v", c.at, err)
		}
	}
	if err := (&Config{Syncers: []wire.SyncerType{wire.Felix}, Insecure: true, TLS: &tls.Config{}}).Validate(); err == nil {
		t.Error("Insecure beside TLS is no error")
	}
}

// Clients that connect and leave are not logged at level info.
func TestConnectionsAreLoggedAtDebug(t *testing.T) {
	var lines bytes.Buffer
	log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelInfo}))
	s, err := New(Config{Syncers: []wire.SyncerType{wire.Felix}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	for _, hello := range []wire.ClientHello{{SyncerType: wire.Felix}, {SyncerType: "nonsense"}} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.NewEncoder(conn).Encode(hello); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAtLeast(conn, make([]byte, 1), 1) // an answer or the end
		_ = conn.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if strings.Contains(lines.String(), `msg="client`) {
		t.Errorf("log:\n%s", lines.String())
	}
}
