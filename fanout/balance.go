package fanout

import (
	"errors"
	"time"
)

// Balance moves clients to other servers of the same fan-out. The protocol has no word for it: a client is let go and
// connects again, to whomever it picks. So a server sheds only what is far beyond its share, for some time, stops well
// before it would have to take clients back, and gives up for a while when those it let go come back.
type Balance struct {
	// Count tells how many servers there are and how many nodes have clients; nil, fewer than two servers or no node: nobody
	// is shed.
	Count func() (servers, nodes int)
	// High is how many percent of its share a server may have before it sheds; 0: 140.
	High int
	// Low is where it stops; 0: 115.
	Low int
	// After is how long the server must have been beyond High; 0: 30 s.
	After time.Duration
	// Rest is how long it rests after it shed; 0: 5 min. It doubles, up to a day, while clients come back.
	Rest time.Duration
}

func (b *Balance) validate() error {
	if b.High < 0 || b.Low < 0 || b.After < 0 || b.Rest < 0 {
		return errors.New("balance: negative")
	}
	full := *b
	full.defaults()
	if full.Low < 100 || full.High <= full.Low {
		return errors.New("balance: must be 100 <= low < high percent")
	}
	return nil
}

func (b *Balance) defaults() {
	setDefault(&b.High, 140)
	setDefault(&b.Low, 115)
	setDefault(&b.After, 30*time.Second)
	setDefault(&b.Rest, 5*time.Minute)
}

// balancer decides when to shed. It is a state machine without a clock.
type balancer struct {
	cfg      Balance
	beyond   time.Time            // since when the server has too many; zero: it has not
	shedding bool                 // between High and Low
	resting  time.Time            // until when nobody is shed
	pause    time.Duration        // the next rest
	shed     map[string]time.Time // hosts that were let go, and when
	back     int                  // of them, how many came back at once
}

// comesBack is within what time a client that was let go counts as come back.
const comesBack = 2 * time.Minute

// minimum is how many came back before it is held to be more than chance.
const minimum = 3

// fair is this server's share, given how many connections a node has on average.
func (b *balancer) fair(conns, hosts int) int {
	if b.cfg.Count == nil || hosts == 0 {
		return 0
	}
	servers, nodes := b.cfg.Count()
	if servers < 2 || nodes == 0 {
		return 0
	}
	return (max(nodes, hosts)*conns + hosts*servers - 1) / (hosts * servers)
}

// step tells whether to let one client go now.
func (b *balancer) step(now time.Time, conns, hosts int) bool {
	share := b.fair(conns, hosts)
	for host, at := range b.shed {
		if now.Sub(at) > comesBack {
			delete(b.shed, host)
		}
	}
	switch {
	case share == 0 || conns*100 <= share*b.cfg.Low:
		if b.shedding {
			b.rest(now, false)
		}
		b.beyond = time.Time{}
		return false
	case b.shedding && b.back >= minimum && b.back*2 >= len(b.shed):
		b.rest(now, true)
		return false
	case b.shedding:
		return true
	case now.Before(b.resting) || conns*100 <= share*b.cfg.High:
		b.beyond = time.Time{}
		return false
	case b.beyond.IsZero():
		b.beyond = now
		return false
	}
	b.shedding = now.Sub(b.beyond) >= b.cfg.After
	return b.shedding
}

// rest ends a time of shedding. In vain: those who were let go came back, so the next time waits longer.
func (b *balancer) rest(now time.Time, vain bool) {
	if !vain || b.pause == 0 {
		b.pause = b.cfg.Rest
	} else {
		b.pause = min(2*b.pause, 24*time.Hour)
	}
	b.shedding, b.beyond, b.back = false, time.Time{}, 0
	b.resting = now.Add(b.pause)
}

// let notes that a host's client was let go.
func (b *balancer) let(now time.Time, host string) {
	if b.shed == nil {
		b.shed = map[string]time.Time{}
	}
	b.shed[host] = now
}

// came notes that a client connected.
func (b *balancer) came(now time.Time, host string) {
	if at, ok := b.shed[host]; ok && now.Sub(at) <= comesBack {
		b.back++
	}
}

// came notes that a host's client connected.
func (s *Server) came(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.balancer.came(time.Now(), host)
}

// balance lets one client go if there are too many: the one that came last, of a host that was not let go lately.
func (s *Server) balance(now time.Time, conns []*conn) {
	hosts := map[string]int{}
	streaming := conns[:0:0]
	for _, c := range conns {
		if c.grace.Load() != 0 {
			hosts[c.host]++
			streaming = append(streaming, c)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m.limit.Set(float64(s.balancer.fair(len(streaming), len(hosts)) * s.cfg.Balance.High / 100))
	if s.draining || !s.balancer.step(now, len(streaming), len(hosts)) {
		return
	}
	for i := len(streaming) - 1; i >= 0; i-- {
		c := streaming[i]
		if _, lately := s.balancer.shed[c.host]; lately {
			continue
		}
		s.balancer.let(now, c.host)
		c.closeBecause("other servers have fewer clients")
		return
	}
}
