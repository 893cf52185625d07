package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

// some are values of two kinds.
func some() map[string]string {
	out := map[string]string{}
	for i := range 5 {
		key, value := loopback(i, 1500)
		out[key] = value
	}
	for i := range 300 {
		key, value := route(i)
		out[key] = value
	}
	return out
}

// changed puts a few changes, each of them a revision.
func (w *world) changed() {
	w.t.Helper()
	key, _ := loopback(0, 0)
	w.put(map[string]string{key: ""})
	key, value := loopback(1, 1400)
	w.put(map[string]string{key: value})
	key, value = loopback(9, 9000)
	another, more := route(400)
	w.put(map[string]string{key: value, another: more})
}

// quiet reports that of the values that changed did not touch none was written. Loopbacks 2 to 4 have these names in VPP, too.
func (w *world) quiet(when string) {
	w.t.Helper()
	writes := w.writes()
	if len(writes) == 0 {
		w.t.Errorf("%s: no writes", when)
	}
	for _, write := range writes {
		for _, name := range []string{"loop2", "loop3", "loop4", "198.18."} {
			if strings.Contains(write, name) && !strings.Contains(write, "198.18.1.150/32") {
				w.t.Errorf("%s: %s", when, write)
			}
		}
	}
}

func servers(t *testing.T, test func(*testing.T, *server)) {
	t.Run("embedded", func(t *testing.T) { test(t, startServer(t)) })
	t.Run("debian", func(t *testing.T) { test(t, startDebian(t)) })
}

// etcd is killed and restarts, with changes that the agent could not receive.
func TestKilledAndBack(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		w := newWorld(t, s, nil)
		w.put(some())
		w.run()
		w.settled()
		w.writes()

		for range 3 {
			s.kill()
			w.note("etcd is away, its values stay as they are")
			s.start(s)
			w.settled()
			w.note("")
			if got := w.writes(); len(got) > 0 {
				t.Errorf("nothing had changed: %q", got)
			}
		}
		w.changed()
		w.settled()
		w.quiet("changes after it")
	})
}

// The agent is cut off while values change and the history is compacted.
func TestCompactedWhileCutOff(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		p := newProxy(t, s.addr)
		w := newWorld(t, s, func(c *etcd.Config) { c.Endpoints = []string{p.url()} })
		w.put(some())
		w.run()
		w.settled()
		w.writes()
		p.cut()
		w.changed()
		w.compact()
		w.note("etcd is away")
		p.open()
		w.settled()
		w.note("")
		w.quiet("after compaction")
	})
}

// A connection on which nothing passes any more, though nobody has ended it, is noticed; meanwhile the statuses expire. Nothing is lost.
func TestSilence(t *testing.T) {
	s := startServer(t)
	p := newProxy(t, s.addr)
	w := newWorld(t, s, func(c *etcd.Config) { c.Endpoints = []string{p.url()} })
	w.put(some())
	w.run()
	w.settled()
	w.writes()
	p.freeze()
	w.changed()
	w.note("etcd is away")
	eventually(t, "statuses expire", func() error {
		if got, err := w.statuses(); err != nil || len(got) > 0 {
			return fmt.Errorf("%d of them, %v", len(got), err)
		}
		return nil
	})
	p.thaw()
	w.settled()
	w.note("")
	w.quiet("after silence")
}

// Another etcd is at the same address, empty at first, with fewer revisions: what it has is what counts.
func TestReplaced(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		w := newWorld(t, s, nil)
		for i := range 20 { // revisions that the other one does not get to
			key, value := loopback(1, 1300+i)
			w.put(map[string]string{key: value})
		}
		w.put(some())
		w.run()
		w.settled()
		w.writes()
		s.kill()
		w.note("etcd is away")
		s.data, w.kv = t.TempDir(), nil
		w.vpp.ClearLog()
		s.start(s)
		w.ifs = map[string]string{}
		values := some()
		key, _ := loopback(0, 0)
		delete(values, key)
		key, value := loopback(1, 1400)
		values[key] = value
		key, value = loopback(9, 9000)
		values[key] = value
		another, more := route(400)
		values[another] = more
		w.put(values)
		w.settled()
		w.note("")
	})
}

// Many keys of one revision are one transaction, and so is a single one.
func TestOneRevisionIsOneTransaction(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		w := newWorld(t, s, nil)
		w.put(some())
		w.run()
		w.settled()
		for i, n := range []int{100, 1, 99} {
			w.mu.Lock()
			w.adds = nil
			w.mu.Unlock()
			values := map[string]string{}
			for j := range n {
				key, value := route(1000 + 100*i + j)
				values[key] = value
			}
			w.put(values)
			w.settled()
			w.mu.Lock()
			if len(w.adds) != 1 || w.adds[0] != n {
				t.Errorf("%d keys: transactions that add %v", n, w.adds)
			}
			w.mu.Unlock()
		}
	})
}

// A member that answers slowly delays things, and nothing else.
func TestSlowMember(t *testing.T) {
	s := startServer(t)
	p := newProxy(t, s.addr)
	w := newWorld(t, s, func(c *etcd.Config) { c.Endpoints = []string{p.url()} })
	w.put(some())
	p.slow(300 * time.Millisecond)
	w.run()
	for i := range 60 { // between reading everything and watching it, too
		key, value := route(500 + i)
		w.put(map[string]string{key: value})
		time.Sleep(50 * time.Millisecond)
	}
	w.settled()
	w.writes()
	p.slow(1100 * time.Millisecond) // an answer takes 2.2 s to 4.4 s, of the 5 s of the statuses' lease
	w.changed()
	w.settled()
	w.quiet("slow")
	p.slow(0)
	w.settled()
	if got := w.writes(); len(got) > 0 {
		t.Errorf("fast again: %q", got)
	}
}

// Of several endpoints one is enough, whichever it is.
func TestSeveralEndpoints(t *testing.T) {
	s := startServer(t)
	one, two := newProxy(t, s.addr), newProxy(t, s.addr)
	w := newWorld(t, s, func(c *etcd.Config) { c.Endpoints = []string{one.url(), "127.0.0.1:1", two.url()} })
	w.put(some())
	w.run()
	w.settled()
	w.writes()
	one.cut()
	w.changed()
	w.settled()
	one.open()
	two.cut()
	key, value := loopback(2, 1300)
	w.put(map[string]string{key: value})
	w.settled()
}

// Of three members each is slow, silent or killed in turn, and the others go on; when two are gone nothing is lost, either.
func TestCluster(t *testing.T) {
	members := startCluster(t)
	if t.Failed() {
		t.FailNow()
	}
	var proxies []*proxy
	w := newWorld(t, members[0], func(c *etcd.Config) {
		c.Endpoints = nil
		for _, m := range members {
			p := newProxy(t, m.addr)
			proxies, c.Endpoints = append(proxies, p), append(c.Endpoints, p.url())
		}
	})
	w.kv = members[0].client(func(c *clientv3.Config) {
		c.Endpoints = []string{members[0].url, members[1].url, members[2].url}
		c.DialKeepAliveTime, c.DialKeepAliveTimeout = time.Second, time.Second
	})
	w.put(some())
	w.run()
	w.settled()
	for i, m := range members {
		key, value := loopback(2, 1300+i)
		w.writes()
		proxies[i].slow(time.Second)
		w.put(map[string]string{key: value})
		w.settled()
		proxies[i].slow(0)
		m.kill()
		key, value = loopback(3, 1300+i)
		w.put(map[string]string{key: value})
		w.settled()
		m.start(m)
		w.settled()
		w.note("")
		for _, write := range w.writes() {
			if !strings.Contains(write, "loop2") && !strings.Contains(write, "loop3") {
				t.Errorf("member %d: %s", i, write)
			}
		}
	}
	members[1].kill()
	members[2].kill()
	time.Sleep(2 * time.Second)
	members[1].start(members[1])
	key, value := loopback(4, 1200)
	w.put(map[string]string{key: value})
	w.settled()
}

// Statuses go with their lease. The agent makes them again, and configures nothing.
func TestExpiredLease(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		w := newWorld(t, s, nil)
		w.put(some())
		w.run()
		w.settled()
		w.writes()
		leases, err := w.kv.Leases(t.Context())
		if err != nil || len(leases.Leases) != 1 {
			t.Fatalf("%+v, %v", leases, err)
		}
		if _, err := w.kv.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
			t.Fatal(err)
		}
		w.settled()
		if got := w.writes(); len(got) > 0 {
			t.Errorf("a lease went: %q", got)
		}
		w.stop()
		eventually(t, "statuses go with the agent", func() error {
			if got, err := w.statuses(); err != nil || len(got) > 0 {
				return fmt.Errorf("%d of them, %v", len(got), err)
			}
			return nil
		})
	})
}

// A restarted agent configures nothing that exists, and the statuses of an agent that was cut off expire.
func TestAgentIsStartedAgain(t *testing.T) {
	s := startServer(t)
	p := newProxy(t, s.addr)
	w := newWorld(t, s, func(c *etcd.Config) { c.Endpoints = []string{p.url()} })
	w.put(some())
	w.run()
	w.settled()
	w.writes()
	p.cut()
	w.stop()
	if got, err := w.statuses(); err != nil || len(got) != len(w.ifs) {
		t.Errorf("%d statuses, %v", len(got), err)
	}
	eventually(t, "statuses expire", func() error {
		if got, err := w.statuses(); err != nil || len(got) > 0 {
			return fmt.Errorf("%d of them, %v", len(got), err)
		}
		return nil
	})
	p.open()
	w.run()
	w.settled()
	if got := w.writes(); len(got) > 0 {
		t.Errorf("started again: %q", got)
	}
}

// What VPP has no place for yet is pending, and says what it waits for; what is wrong says why; both are mended.
func TestStatusesSayWhatBecameOfIt(t *testing.T) {
	s := startServer(t, "-max-request-bytes", "20000000")
	w := newWorld(t, s, nil)
	w.run()
	vlan, loop, long := "config/vpp/v2/interfaces/loop1.7", "config/vpp/v2/interfaces/loop1", "config/vpp/v2/interfaces/long"
	kv := s.client(func(c *clientv3.Config) { c.MaxCallSendMsgSize = 20 << 20 })
	put := func(key, value string) {
		if _, err := kv.Put(t.Context(), root+key, value); err != nil {
			t.Fatal(err)
		}
	}
	w.kv = kv
	check := func(key string, state kvscheduler.ValueState, detail string) {
		t.Helper()
		eventually(t, key, func() error {
			got, err := w.statuses()
			if st := got[key]; err != nil || st.GetState() != state || !strings.Contains(st.GetError()+strings.Join(st.GetDetails(), " "), detail) {
				return fmt.Errorf("%v, %v", st, err)
			}
			return nil
		})
	}
	put(vlan, `{"name":"loop1.7","type":"SUB_INTERFACE","enabled":true,"sub":{"parentName":"loop1","subId":7}}`)
	check(vlan, kvscheduler.ValueState_PENDING, "interfaces/loop1")
	put(loop, `{"name":"loop1","type":"SOFTWARE_LOOPBACK","enabled":true}`)
	check(loop, kvscheduler.ValueState_CONFIGURED, "")
	check(vlan, kvscheduler.ValueState_CONFIGURED, "")
	put(loop, `{"name":"loop2","type":"SOFTWARE_LOOPBACK"}`)
	check(loop, kvscheduler.ValueState_INVALID, "the earlier value stays")
	check(vlan, kvscheduler.ValueState_CONFIGURED, "")
	put("config/vpp/nat/v2/nat99/x", `{}`)
	check("config/vpp/nat/v2/nat99/x", kvscheduler.ValueState_INVALID, "no model")
	put("config/vpp/nat/v2/dnat44/x", `{"label":"x","stMappings":[{"externalIp":"nonsense","localIps":[{"localIp":"10.0.0.1"}]}]}`)
	check("config/vpp/nat/v2/dnat44/x", kvscheduler.ValueState_INVALID, "nonsense")
	put(long, `{"name":"long","physAddress":"`+strings.Repeat("x", 10<<20)+`"}`)
	check(long, kvscheduler.ValueState_INVALID, "at most 2097152 bytes")
	put(long, `{"name":"long","physAddress":"`+strings.Repeat("x", 18<<20)+`"}`) // not even read
	check(long, kvscheduler.ValueState_INVALID, "at most 2097152 bytes")
	put(loop, `{"name":"loop1","type":"SOFTWARE_LOOPBACK","enabled":true,"mtu":1400}`)
	check(loop, kvscheduler.ValueState_CONFIGURED, "")
	w.note("2 of 5 keys refused")
}

// With a limited wait the agent starts without its values, and reports that; the values follow.
func TestEtcdIsNotThereYet(t *testing.T) {
	s := startServer(t)
	w := newWorld(t, s, func(c *etcd.Config) { c.StartWait = 2 * time.Second })
	w.put(some())
	s.kill()
	w.run()
	w.note("connection refused")
	w.note("the agent continues without the values in etcd")
	eventually(t, "the agent is in sync", func() error {
		if st, err := w.agent.Status(t.Context()); err != nil || !st.InSync {
			return fmt.Errorf("%+v, %w", st, err)
		}
		return nil
	})
	s.start(s)
	w.settled()
	w.note("")
}

// A user gets the keys that it may read; with a wrong password the agent gets nothing and reports that.
func TestUserAndPassword(t *testing.T) {
	s := startServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kv := s.client(nil)
	var errs []error
	do := func(_ any, err error) { errs = append(errs, err) }
	do(kv.UserAdd(ctx, "root", "toor"))
	do(kv.UserGrantRole(ctx, "root", "root"))
	do(kv.RoleAdd(ctx, "node-1"))
	do(kv.RoleGrantPermission(ctx, "node-1", root, clientv3.GetPrefixRangeEnd(root), clientv3.PermissionType(clientv3.PermReadWrite)))
	do(kv.UserAdd(ctx, "agent", "secret"))
	do(kv.UserGrantRole(ctx, "agent", "node-1"))
	do(kv.AuthEnable(ctx))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	wrong := newWorld(t, s, func(c *etcd.Config) { c.Username, c.Password = "agent", "guess" })
	wrong.run()
	wrong.note("authentication failed, invalid user ID or password")
	stranger := newWorld(t, s, nil)
	stranger.run()
	stranger.note("user name is empty")

	w := newWorld(t, s, func(c *etcd.Config) { c.Username, c.Password = "agent", "secret" })
	w.kv = s.client(func(c *clientv3.Config) { c.Username, c.Password = "root", "toor" })
	w.put(some())
	w.run()
	w.settled()
	s.kill()
	s.start(s)
	w.kv = s.client(func(c *clientv3.Config) { c.Username, c.Password = "root", "toor" })
	w.changed()
	w.settled()
}
