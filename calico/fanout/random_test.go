package fanout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// TestRandomClients connects and disconnects clients of all forms while keys change. Each client connected at the end holds
// what the source sent. Each received a whole snapshot before in-sync, and keys of one form only. Calico's clients never
// receive /contiv/ keys.
func TestRandomClients(t *testing.T) {
	seeds := 4
	if n, err := strconv.Atoi(os.Getenv("CONTIV_CASES")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomClients(t, rand.New(rand.NewPCG(uint64(seed), 1))) })
		})
	}
}

func randomClients(t *testing.T, r *rand.Rand) {
	cfg := Config{Modern: []wire.SyncerType{wire.Felix}, Snapshots: 1 + r.IntN(4)}
	if r.IntN(2) == 0 {
		cfg.BatchEvery = time.Duration(1+r.IntN(100)) * time.Millisecond
	}
	s, l := serving(t, cfg)
	models := map[bool]map[string]string{false: {}, true: {}}
	publish := func(status wire.Status, n int) {
		for _, modern := range []bool{false, true} {
			var kvs []wire.KV
			for range n {
				key := fmt.Sprintf("/%v/%d", modern, r.IntN(2000))
				if r.IntN(10) == 0 {
					key = wire.OwnKeys + fmt.Sprint(r.IntN(50))
				}
				if r.IntN(4) == 0 {
					kvs = append(kvs, wire.KV{Key: key})
					delete(models[modern], key)
					continue
				}
				value := strings.Repeat("v", 1+r.IntN(300))
				kvs = append(kvs, kv(key, value))
				models[modern][key] = value
			}
			s.Publish(wire.Batch{Syncer: wire.Felix, Status: status, Modern: modern, KVs: kvs})
		}
	}
	type peer struct {
		*client
		modern, own bool
		ended       chan struct{}
	}
	var peers []*peer
	join := func() {
		h := hello("n")
		h.SupportsModernPolicyKeys = r.IntN(2) == 0
		h.SupportsDecoderRestart = r.IntN(3) > 0
		if r.IntN(2) == 0 {
			h.Info = wire.OwnInfo
		}
		p := &peer{connected(t, l, h), h.SupportsModernPolicyKeys, h.Own(), make(chan struct{})}
		slow := time.Duration(r.IntN(3)*r.IntN(20)) * time.Millisecond
		p.onKVs = func(kvs []wire.KV) {
			for _, kv := range kvs {
				if !p.own && strings.HasPrefix(kv.Key, wire.OwnKeys) {
					t.Errorf("a client without rights gets %s", kv.Key)
				}
			}
			time.Sleep(slow)
		}
		peers = append(peers, p)
		go func() {
			defer close(p.ended)
			_ = p.until(func() bool { return false })
		}()
	}
	for step := range 40 {
		publish(min(wire.Status(step), wire.InSync), r.IntN(300))
		if r.IntN(3) == 0 {
			join()
		}
		if len(peers) > 0 && r.IntN(8) == 0 {
			i := r.IntN(len(peers))
			_ = peers[i].conn.Close()
			<-peers[i].ended
			peers = append(peers[:i], peers[i+1:]...)
		}
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	}
	join()
	time.Sleep(settle)
	for i, p := range peers {
		_ = p.conn.Close()
		<-p.ended
		want := maps.Clone(models[p.modern])
		maps.DeleteFunc(want, func(key, _ string) bool { return !p.own && strings.HasPrefix(key, wire.OwnKeys) })
		if p.status != wire.InSync || !maps.Equal(p.keys, want) {
			t.Errorf("client %d of %d (modern %v, own %v): %s, %d keys, want %d", i, len(peers), p.modern, p.own, p.status, len(p.keys), len(want))
		}
	}
}

// TestUnneededCrumbsAreGarbage: crumbs that no client needs any more are garbage, with clients connected or not.
func TestUnneededCrumbsAreGarbage(t *testing.T) {
	for _, clients := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s, l := serving(t, Config{})
			s.Publish(batchOf(wire.InSync))
			for range clients {
				c := connected(t, l, hello("n"))
				go func() { _ = c.until(func() bool { return false }) }()
			}
			time.Sleep(settle)
			early := s.caches[set{syncer: wire.Felix}].latest()
			reachable := func(from *crumb) (n int) {
				for ; from != nil; from = from.next.Load() {
					n++
				}
				return n
			}
			for i := range 100 {
				s.Publish(batchOf(wire.InSync, kv("/k", fmt.Sprint(i))))
				time.Sleep(100 * time.Millisecond)
			}
			if n := reachable(early.crumb); n != 101 {
				t.Fatalf("%d crumbs after 100 changes", n)
			}
			for of, c := range s.caches {
				if v := c.start.Load(); v != nil && reachable(v.crumb) > 12 {
					t.Errorf("%s: the place where clients begin keeps %d crumbs", of, reachable(v.crumb))
				}
			}
			for _, c := range s.allConns() {
				if n := reachable(c.reached.Load()); n > 1 {
					t.Errorf("a client keeps %d crumbs", n)
				}
			}
		})
	}
}
