package fanout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// Balance moves clients to other servers of the same fan-out. The protocol has no message for that: the server closes a
// connection, and the client connects to any server. So a server sheds clients only if it has had far more than its share
// for some time. It stops well above its share, and pauses if shed clients connect to it again.
type Balance struct {
	// Service is "namespace/name" of the Service whose ready endpoints are the servers. The server counts them, and the
	// nodes, in the keys of felix. Servers is their number where Service is not set. With neither set, fewer than two
	// servers or no node, it sheds no client.
	Service string
	Servers int
	// Count replaces both if not nil.
	Count func() (servers, nodes int)
	// High is the percentage of its share above which a server sheds clients; 0: 140.
	High int
	// Low is the percentage at which it stops; 0: 115.
	Low int
	// After is how long the server must have been above High; 0: 30 s.
	After time.Duration
	// Rest is the pause after shedding; 0: 5 min. It doubles, up to a day, while shed clients come back.
	Rest time.Duration
}

func (b *Balance) validate() error {
	if ns, name, ok := strings.Cut(b.Service, "/"); b.Service != "" && (!ok || ns == "" || name == "") {
		return fmt.Errorf("balance: service %q: must be namespace/name", b.Service)
	}
	if b.Servers < 0 || b.High < 0 || b.Low < 0 || b.After < 0 || b.Rest < 0 {
		return errors.New("balance: values must not be negative")
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
	beyond   time.Time            // since when the server has been above High; zero: it is not
	shedding bool                 // between High and Low
	resting  time.Time            // no shedding until then
	pause    time.Duration        // the next pause
	shed     map[string]time.Time // hosts whose clients were shed, and when
	back     int                  // how many of them soon came back
}

// comesBack is the time within which a shed client counts as having come back.
const comesBack = 2 * time.Minute

// minimum is how many clients must come back before that counts as more than chance.
const minimum = 3

// fair returns this server's share of connections, given the average number of connections per node.
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

// step reports whether to shed one client now.
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

// rest ends a period of shedding. vain means that shed clients came back: the next pause is longer.
func (b *balancer) rest(now time.Time, vain bool) {
	if !vain {
		b.pause = 0
	}
	b.pause = backoff.Range{Min: b.cfg.Rest, Max: max(b.cfg.Rest, 24*time.Hour)}.Next(b.pause)
	b.shedding, b.beyond, b.back = false, time.Time{}, 0
	b.resting = now.Add(b.pause)
}

// let records that a host's client was shed.
func (b *balancer) let(now time.Time, host string) {
	if b.shed == nil {
		b.shed = map[string]time.Time{}
	}
	b.shed[host] = now
}

// came records that a host's client connected.
func (b *balancer) came(now time.Time, host string) {
	if at, ok := b.shed[host]; ok && now.Sub(at) <= comesBack {
		b.back++
	}
}

// came records that a host's client connected.
func (s *Server) came(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.balancer.came(time.Now(), host)
}

// balance sheds one client if there are too many: the newest one of a host without a recently shed client.
func (s *Server) balance(now time.Time, conns []*conn) {
	hosts := map[string]int{}
	streaming := conns[:0:0]
	for _, c := range conns {
		if c.grace.Load() != nil {
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

// resources begins the keys of Kubernetes' and Calico's whole resources.
const resources = "/calico/resources/v3/projectcalico.org/"

// counter returns a function that counts servers and nodes in the keys of felix. It counts again after the keys have
// changed.
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

// countReady counts the ready addresses in a Service's EndpointSlices.
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
