package realvpp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A client's ports are those that Linux gives clients (net.ipv4.ip_local_port_range). Flows that use one port after another have those from dialPort
// on: VPP may still have a session of such a port's last flow.
const firstPort, dialPort, lastPort = 32768, 43000, 60999

// round is the time before, during and after an event.
type round struct {
	world *traffic
	what  *happens
	began time.Time
	ctx   context.Context
	first uint32
	flows []*flow

	mu     sync.Mutex
	ports  map[uint16]*flow
	pushes map[*flow]bool
	// event and acknowledged are when something happened, and when all agents had it acknowledged by VPP; end is when nobody spoke any more.
	event, acknowledged, end time.Duration
}

func (r *round) now() time.Duration { return time.Since(r.began) }

func (r *round) client(f *flow) *netns { return r.world.clients[f.role] }

// port is the next one of a client, with its address.
func (r *round) port(f *flow) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, first, last := &r.world.port, uint16(firstPort), uint16(dialPort-1)
	if f.dials() {
		next, first, last = &r.world.dial, dialPort, lastPort
	}
	for {
		if *next++; *next > last || *next < first {
			*next = first
		}
		if other := r.ports[*next]; other == nil || other == f || other.dials() {
			break // attempts of long ago are over
		}
	}
	r.ports[*next] = f
	return netip.AddrPortFrom(f.role.addr(f.six), *next)
}

// dials reports that a flow uses one port after another.
func (f *flow) dials() bool {
	return f.kind.protocol == unix.IPPROTO_TCP && (f.kind.fresh || !f.before)
}

// at is the flow of a client's address, or of one that hides it, and port. What TCP still sends of connections of an earlier round is nobody's.
func (r *round) at(client netip.AddrPort, protocol uint8) *flow {
	r.mu.Lock()
	f := r.ports[client.Port()]
	r.mu.Unlock()
	if f == nil || f.kind.protocol != protocol && (f.kind != echo || protocol != unix.IPPROTO_ICMPV6) {
		return nil
	}
	for _, other := range roles {
		if other != f.role && client.Addr() == other.addr(client.Addr().Is6()) {
			return nil
		}
	}
	return f
}

func (r *round) pushing(f *flow) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pushes[f]
}

// startPush reports that nobody pushes yet.
func (r *round) startPush(f *flow) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.pushes[f]
	r.pushes[f] = true
	return !was
}

// allFlows are those of a round.
func (w *traffic) allFlows(e *happens) []*flow {
	var out []*flow
	for _, six := range w.families {
		for _, r := range roles {
			for _, s := range servers {
				if s.vip != 0 {
					out = append(out, flowsOf(r, s, six)...)
				}
			}
			if e.late {
				for _, k := range []*kind{tcpNew, udpAsks, udpUpload} {
					out = append(out, &flow{role: r, kind: k, by: byPod, server: late, six: six})
				}
			}
		}
	}
	for _, f := range out {
		f.id = w.first
		w.first++
		f.after = f.role.before
		if f.before = f.role.before && f.server != late; e.moves(f.role) {
			f.after = f.role.after
		}
	}
	return out
}

func flowsOf(r *role, s *server, six bool) (out []*flow) {
	add := func(by string, kinds ...*kind) {
		for _, k := range kinds {
			out = append(out, &flow{role: r, kind: k, by: by, server: s, six: six})
		}
	}
	add(byVIP, tcpAsks, tcpPush, tcpUpload, tcpNew, udpAsks, udpPush, udpUpload)
	add(byPod, tcpAsks, tcpPush, tcpUpload, tcpNew, udpAsks, udpPush, udpUpload)
	add(byHigh, tcpAsks, tcpPush, tcpUpload, udpAsks)
	if !r.ports {
		add(byPod, echo)
	}
	return out
}

// happens is an event. It does not return before agents say that VPP has acknowledged what follows from it; it returns when that was.
type happens struct {
	name  string
	moves func(*role) bool // whose rules change with it
	loses bool             // VPP ends, and with it all sessions
	late  bool             // a pod appears; some send to it before it exists
	do    func(w *traffic, policies string) time.Time
}

const (
	warm  = 3               // messages of each allowed flow before and after an event
	grace = time.Second     // after the acknowledgement, in which a flow may still end
	look  = 2 * time.Second // after that
	// recovery is how long after that an allowed flow may take to show that it continues; and twice as long as the event lasted: so far apart are two
	// attempts of TCP by then, whose pauses double.
	recovery = 6 * time.Second
)

// play lets flows run before, during and after an event.
func (w *traffic) play(e happens) *round {
	w.t.Helper()
	before := policiesManifest(func(r *role) bool { return r.before }, false)
	if w.read("40-policies.yaml") != before {
		since := time.Now()
		w.write("40-policies.yaml", before)
		w.settled(since)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &round{world: w, what: &e, began: time.Now(), ctx: ctx, first: w.first, ports: map[uint16]*flow{}, pushes: map[*flow]bool{}}
	r.flows = w.allFlows(&e)
	w.now.Store(r)
	var all sync.WaitGroup
	over := func() {
		stop()
		all.Wait()
		w.now.Store(nil)
	}
	defer over() // however the event fails
	for _, f := range r.flows {
		all.Go(func() { f.run(ctx, r) })
	}
	r.alive(func(f *flow) bool { return f.before }, 0, recovery)
	r.event = r.now()
	after := policiesManifest(func(role *role) bool {
		if e.moves(role) {
			return role.after
		}
		return role.before
	}, false)
	r.acknowledged = e.do(w, after).Sub(r.began)
	wait(ctx, r.acknowledged+grace+look-r.now())
	r.alive(r.goesOn, r.acknowledged, recovery+2*(r.acknowledged-r.event))
	r.explain()
	r.end = r.now()
	over()
	return r
}

// alive waits until flows have heard some messages since, if they do so in time.
func (r *round) alive(of func(*flow) bool, since, limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); wait(r.ctx, 20*time.Millisecond) {
		if !slices.ContainsFunc(r.flows, func(f *flow) bool { return of(f) && within(f.heard(), since, r.now()) < warm }) {
			return
		}
	}
}

// goesOn reports that a flow must be heard after the event: policies allow it, and it needs nothing that VPP lost. What VPP loses with its
// process are translations, which the sessions of TCP and a server's packets need, and that a closed client has asked.
func (r *round) goesOn(f *flow) bool {
	needs := f.kind.protocol == unix.IPPROTO_TCP && !f.dials() || f.kind == udpPush
	if r.what.loses && f.before && (f.by == byVIP && needs || f.role.closed && !f.kind.client) {
		return false
	}
	return f.after
}

// explain logs what the VPPs do with packets of a flow that does not go on, while it still sends.
func (r *round) explain() {
	for _, f := range r.flows {
		if !r.goesOn(f) || within(f.heard(), r.acknowledged, r.now()) >= warm {
			continue
		}
		r.mu.Lock()
		port := ""
		for p, of := range r.ports {
			if of == f {
				port = strconv.Itoa(int(p))
			}
		}
		r.mu.Unlock()
		r.world.eachNode(func(n *siteNode) error { n.cli("clear trace"); n.cli("trace add af-packet-input 5000"); return nil })
		wait(r.ctx, 2*interval)
		for _, n := range r.world.nodes {
			text := fmt.Sprintf("%s, port %s, on %s\n", f, port, n.node.Name)
			for i, packet := range strings.Split(n.cli("show trace max 5000"), "\nPacket ") {
				if i > 0 && strings.Contains(packet, port) && strings.Count(text, "Packet ") < 4 {
					text += "Packet " + packet + "\n"
				}
			}
			for _, c := range []string{"show acl-plugin sessions", "show nat44 sessions", "show cnat session"} {
				for _, line := range strings.Split(n.cli(c), "\n") {
					if strings.Contains(line, port) {
						text += line + "\n"
					}
				}
			}
			r.world.t.Log(text)
		}
		return
	}
}

// mostBypassed is how many flows of an event may have a session that cnat made before the client's interface had its features.
const mostBypassed = 4

// bypassed reports that cnat of a node translated a flow's first packet where it looked up the route, not where the packet came in: before the agent
// had closed the client's interface. VPP keeps that session as long as the flow lasts, and the answers do not have the addresses that the client's lists know.
func (r *round) bypassed(f *flow) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := false
	r.world.eachNode(func(n *siteNode) error {
		for line := range strings.SplitSeq(n.cli("show cnat session"), "\n") {
			for p, of := range r.ports {
				found = found || of == f && strings.Contains(line, ";"+strconv.Itoa(int(p))+", ") && strings.Contains(line, " fib ")
			}
		}
		return nil
	})
	return found
}

func within(log []time.Duration, from, to time.Duration) (n int) {
	for _, at := range log {
		if at >= from && at < to {
			n++
		}
	}
	return n
}
