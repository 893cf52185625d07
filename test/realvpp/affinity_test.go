package realvpp

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
)

// TestVPPAffinityConnections: clients with affinity to an endpoint, while another endpoint is removed. They reach their endpoint again.
// Nat44 ends the connections to the removed one, and to at most one that remains: that one takes its place, so that its clients are served.
func TestVPPAffinityConnections(t *testing.T) {
	const addresses, gone = 24, 1
	c := openCrowd(t, theVPP(t), 1, agent.Config{}, addresses)
	f := c.families[0]
	var clients []netip.Addr
	var held []*stream
	for i := range addresses {
		clients = append(clients, netip.AddrFrom4([4]byte{10, 1, 1, byte(100 + i)}))
	}
	open := func(i int) *stream {
		t.Helper()
		f.own = clients[i]
		s, err := f.open()
		if err != nil {
			t.Fatalf("%s to %s: %v", f.own, f, err)
		}
		return s
	}
	var met set
	for i := range clients {
		s := open(i)
		defer s.conn.Close()
		held, met = append(held, s), met.with(s.by)
		for range 3 {
			again := open(i)
			again.conn.Close()
			if again.by != s.by {
				t.Fatalf("%s met endpoint %d and then %d", f.own, s.by, again.by)
			}
		}
	}
	if met&(met-1) == 0 {
		t.Fatalf("%d clients met only %b", addresses, met)
	}
	c.is[gone] = absent
	c.emit(c.slices(), false)

	var mu sync.Mutex
	var all sync.WaitGroup
	var on, off set
	for _, s := range held {
		all.Go(func() {
			err := s.exchange(3000, 10*time.Second)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				on = on.with(s.by)
			} else {
				off = off.with(s.by)
			}
		})
	}
	all.Wait()
	ended := off &^ set(0).with(gone)
	if on&off != 0 || on.has(gone) || ended&(ended-1) != 0 {
		t.Errorf("connections to endpoints %b go on, those to %b ended; %d went", on, off, gone)
	}
	for i, s := range held {
		after := open(i)
		after.conn.Close()
		switch {
		case after.by == gone:
			t.Errorf("%s meets endpoint %d, which went", f.own, gone)
		case s.by != gone && after.by != s.by:
			t.Errorf("%s met endpoint %d, which stays, and now %d", f.own, s.by, after.by)
		}
	}
	t.Logf("endpoint %d went: connections to %b go on, those to %b ended", gone, on, off)
}
