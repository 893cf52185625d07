package fanout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/fanout/wire"
)

// Balance moves clients to other servers of the same fan-out. The protocol has no word for it: a client is let go and
// connects again, to whomever it picks. So a server sheds only what is far beyond its share, for some time, stops well
// before it would have to take clients back, and gives up for a while when those it let go come back.
type Balance struct {
	// Service is "namespace/name" of the Service whose ready endpoints are the servers. They are counted in the keys of felix,
	// as are the nodes. Servers is how many there are where that is not known. With both unset, fewer than two servers or no
	// node nobody is shed.
	Service string
	Servers int
	// Count replaces both if not nil.
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
	if ns, name, ok := strings.Cut(b.Service, "/"); b.Service != "" && (!ok || ns == "" || name == "") {
		return fmt.Errorf("balance: service %q: must be namespace/name", b.Service)
	}
	if b.Servers < 0 || b.High < 0 || b.Low < 0 || b.After < 0 || b.Rest < 0 {
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

// resources is what the keys of Kubernetes' and Calico's own objects begin with.
const resources = "/calico/resources/v3/projectcalico.org/"

// counter counts servers and nodes in the keys of felix, again whenever these have changed.
func (s *Server) counter(b Balance) func() (servers, nodes int) {
	felix := s.caches[set{syncer: wire.Felix}]
	if felix == nil || b.Service == "" && b.Servers == 0 {
		return nil
	}
	var seen *view
	var servers, nodes int
	return func() (int, int) {
		if v := felix.latest(); v != seen {
			seen, servers, nodes = v, b.Servers, 0
			v.prefixed(resources+"nodes/", func(*entry) { nodes++ })
			if b.Service != "" {
				servers = countReady(v.snapshot, b.Service)
			}
		}
		return servers, nodes
	}
}

// countReady counts the ready addresses in the EndpointSlices of a Service.
func countReady(keys snapshot, service string) int {
	ready := map[string]bool{}
	_, name, _ := strings.Cut(service, "/")
	keys.prefixed(resources+"kubernetesendpointslices/"+service, func(e *entry) {
		var slice struct {
			Metadata  struct{ Labels map[string]string }
			Endpoints []struct {
				Addresses  []string
				Conditions struct{ Ready *bool }
			}
		}
		if json.Unmarshal([]byte(e.value), &slice) != nil || slice.Metadata.Labels["kubernetes.io/service-name"] != name {
			return
		}
		for _, ep := range slice.Endpoints {
			if len(ep.Addresses) > 0 && (ep.Conditions.Ready == nil || *ep.Conditions.Ready) {
				ready[ep.Addresses[0]] = true
			}
		}
	})
	return len(ready)
}
