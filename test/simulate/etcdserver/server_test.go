package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/contiv-agent/contiv-agent/test/simulate/network"
)

// inBubble runs a test with etcd's client on a server that has two keys.
func inBubble(t *testing.T, f func(*testing.T, *Server, *clientv3.Client, *network.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, n := New(), network.New()
		s.Start(n)
		defer s.Stop()
		s.Write(map[string]string{"a/1": "x", "a/2": "y"})
		dial := func(ctx context.Context, _ string) (net.Conn, error) { return n.Dial(ctx) }
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"etcd:2379"}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		f(t, s, c, n)
	})
}

// next returns the events of the next answer of a watch, or its error.
func next(w clientv3.WatchChan) []string {
	resp := <-w
	if err := resp.Err(); err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, ev := range resp.Events {
		out = append(out, fmt.Sprintf("%s %s=%s@%d", ev.Type, ev.Kv.Key, ev.Kv.Value, ev.Kv.ModRevision))
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPages(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server, c *clientv3.Client, _ *network.Network) {
		s.Write(map[string]string{"a/2": "", "a/3": "z"})
		s.Write(map[string]string{"b/1": "other"})
		read := func(rev, limit int64) (out []string, more bool) {
			got, err := c.Get(t.Context(), "a/", clientv3.WithPrefix(), clientv3.WithRev(rev), clientv3.WithLimit(limit))
			if err != nil {
				return []string{err.Error()}, false
			}
			for _, kv := range got.Kvs {
				out = append(out, string(kv.Key)+"="+string(kv.Value))
			}
			return out, got.More
		}
		now, _ := read(0, 0)
		expect(t, now, "a/1=x", "a/3=z")
		first, _ := read(1, 0)
		expect(t, first, "a/1=x", "a/2=y")
		part, more := read(0, 1)
		if expect(t, part, "a/1=x"); !more {
			t.Error("no more than one")
		}
		s.ForgetHistory()
		gone, _ := read(1, 0)
		expect(t, gone, rpctypes.ErrCompacted.Error())
		future, _ := read(9, 0)
		expect(t, future, rpctypes.ErrFutureRev.Error())
	})
}

func TestWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server, c *clientv3.Client, _ *network.Network) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		w := c.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithRev(1))
		expect(t, next(w), "PUT a/1=x@1", "PUT a/2=y@1")
		s.Write(map[string]string{"b/1": "other"})
		s.Write(map[string]string{"a/1": "", "a/2": "new"})
		expect(t, next(w), "DELETE a/1=@3", "PUT a/2=new@3")
		s.ForgetHistory()
		expect(t, next(c.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithRev(2))), rpctypes.ErrCompacted.Error())
		time.Sleep(time.Hour) // virtual time moves while watches wait
		s.Write(map[string]string{"a/3": "z"})
		expect(t, next(w), "PUT a/3=z@4") // the watch had all before the compaction
	})
}

// After the next complete read of keys they change, once, and what lies between is compacted.
func TestAfterRead(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server, c *clientv3.Client, _ *network.Network) {
		read := func(prefix string, limit int64) int64 {
			got, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithLimit(limit))
			if err != nil {
				t.Fatal(err)
			}
			return got.Header.Revision
		}
		changes := []map[string]string{{"a/1": "new"}, {"a/1": "", "a/3": "z"}}
		s.AfterRead("a/", changes, true)
		if read("b/", 0); read("a/", 1) != 1 || s.Revision() != 1 {
			t.Errorf("revision %d after a read of other keys, and of a part", s.Revision())
		}
		rev := read("a/", 0)
		expect(t, next(c.Watch(t.Context(), "a/", clientv3.WithPrefix(), clientv3.WithRev(rev+1))), rpctypes.ErrCompacted.Error())
		if rev != 1 || read("a/", 0) != 3 || s.Revision() != 3 {
			t.Errorf("revision %d, then %d", rev, s.Revision())
		}
		s.AfterRead("a/", changes, false)
		rev = read("a/", 0)
		expect(t, next(c.Watch(t.Context(), "a/", clientv3.WithPrefix(), clientv3.WithRev(rev+1))), "PUT a/1=new@4", "DELETE a/1=@5", "PUT a/3=z@5")
		s.AfterRead("a/", changes, false)
		s.AfterRead("", nil, false)
		if read("a/", 0); s.Revision() != 5 {
			t.Errorf("revision %d after a disarmed read", s.Revision())
		}
	})
}

// A lease holds its keys as long as the client renews it.
func TestLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server, c *clientv3.Client, n *network.Network) {
		write := func() (<-chan *clientv3.LeaseKeepAliveResponse, error) {
			lease, err := c.Grant(t.Context(), 30)
			if err != nil {
				return nil, err
			}
			alive, err := c.KeepAlive(t.Context(), lease.ID)
			if err == nil {
				_, err = c.Txn(t.Context()).Then(clientv3.OpPut("s/1", "ok", clientv3.WithLease(lease.ID)), clientv3.OpDelete("s/2")).Commit()
			}
			return alive, err
		}
		lost := func(alive <-chan *clientv3.LeaseKeepAliveResponse) {
			for range alive {
			}
		}
		alive, err := write()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(10 * time.Minute)
			if s.Values("s/")["s/1"] != "ok" {
				t.Error("the key of a lease that is renewed is gone")
			}
			s.LoseLeases()
		}()
		lost(alive)
		if len(s.Values("s/")) != 0 {
			t.Error("the key of a lost lease stays")
		}
		if alive, err = write(); err != nil {
			t.Fatal(err)
		}
		n.Change(func(f *network.Faults) { f.Cut++ })
		lost(alive)
		time.Sleep(time.Minute)
		if len(s.Values("s/")) != 0 {
			t.Error("the key of a lease that is not renewed stays")
		}
		n.Change(func(f *network.Faults) { f.Cut-- })
		if _, err := c.Txn(t.Context()).Then(clientv3.OpPut("s/1", "ok", clientv3.WithLease(1))).Commit(); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Error(err)
		}
	})
}

// After a restored backup the revisions are those of the backup.
func TestRestore(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server, c *clientv3.Client, n *network.Network) {
		s.Write(map[string]string{"a/3": "z"})
		s.Write(map[string]string{"a/1": ""})
		s.Restore(1)
		n.Sever()
		got, err := c.Get(t.Context(), "a/", clientv3.WithPrefix())
		if err != nil || got.Header.Revision != 1 || len(got.Kvs) != 2 || s.Revision() != 1 || string(got.Kvs[0].Value) != "x" || got.Kvs[0].ModRevision != 1 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
