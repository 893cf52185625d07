package flows

import (
	"hash/maphash"
	"maps"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// known are the connections of the latest read, and the ends that opened those with sessions.
type known struct {
	sessions   map[string]print // by Session.ID
	opened     map[ends]netip.AddrPort
	closed     map[ends]netip.AddrPort // as opened, of sessions that ended since NAT44's table was read
	translated map[sessions.Translated]flows.Counts
	endpoints  map[dial]netip.AddrPort // of translated connections
	assumed    map[ends]bool           // connections of translated whose client is assumed
	ended      recent                  // ends of assumed that NAT44 has no more: access lists may keep a session for longer
	reading    sessions.Reading        // the latest one, without its sessions
	listed     bool                    // the latest read had all connections that NAT44 only lets pass: all sessions of access lists, or flowprobe's
	seed       maphash.Seed
	sampler    *capture.Sampler // of sessions, if they are too many; the reader's
	current    bool             // NAT44's table was read in this look, after the sessions
	held       []observation    // sessions that wait for a read of NAT44's table
}

// print stands for a session at its place in VPP's table: a hash of each of its forms. A place has another session when the former one has ended.
type print [2]uint64

// mostPlaces is how many places are known while sessions are sampled. A session at another place is shown, and counts no connection.
const mostPlaces = 50_000

func (k *known) printOf(forms ...capture.Session) (p print) {
	for i := range min(len(forms), len(p)) {
		p[i] = maphash.Comparable(k.seed, forms[i])
	}
	return p
}

// sharesForm reports whether the sessions have a form in common.
func (p print) sharesForm(other print) bool {
	for _, a := range p {
		if a != 0 && (a == other[0] || a == other[1]) {
			return true
		}
	}
	return false
}

// recent are hashes that were added last: mostRecent at least, and twice as many at most.
type recent struct{ now, before map[uint64]bool }

const mostRecent = 200_000

func (r *recent) insert(hash uint64) {
	if len(r.now) >= mostRecent {
		r.before, r.now = r.now, nil
	}
	if r.now == nil {
		r.now = map[uint64]bool{}
	}
	r.now[hash] = true
}

// isCounted reports whether NAT44's table showed a connection in place of its session.
func (k *known) isCounted(e ends) bool {
	if k.assumed[e] || len(k.ended.now) == 0 {
		return k.assumed[e]
	}
	hash := maphash.Comparable(k.seed, e)
	return k.ended.now[hash] || k.ended.before[hash]
}

// replaceOpened replaces the ends that opened connections with sessions.
func (k *known) replaceOpened(now map[ends]netip.AddrPort) {
	for e, source := range k.opened {
		if _, ok := now[e]; ok || len(k.closed) >= mostPlaces {
			continue
		}
		if k.closed == nil {
			k.closed = map[ends]netip.AddrPort{}
		}
		k.closed[e] = source
	}
	k.opened = now
}

// replaceAssumed notes the connections whose client is assumed, and those of the former ones that NAT44 has no more.
func (k *known) replaceAssumed(now map[ends]bool) {
	for e := range k.assumed {
		if !now[e] {
			k.ended.insert(maphash.Comparable(k.seed, e))
		}
	}
	k.assumed = now
}

// forgetOpened forgets who opened the connections that NAT44's table could have, and has not: it needs to know no others.
func (k *known) forgetOpened(r *sessions.Reading) {
	passed := map[ends]bool{}
	for t := range k.translated {
		if t.Dialled == t.Endpoint {
			e, _ := endsOf(t.Client, t.Endpoint, t.Protocol)
			passed[e] = true
		}
	}
	maps.DeleteFunc(k.opened, func(e ends, _ netip.AddrPort) bool {
		return !passed[e] && (r.Listed == nil || r.Listed[e.low.Addr()] || r.Listed[e.high.Addr()])
	})
}

// dial is a connection as its client knows it.
type dial struct {
	client, dialled netip.AddrPort
	protocol        uint8
}

// orient makes the end that opened a connection its source; false: it is not known.
func (k *known) orient(o *observation) bool {
	e, _ := endsOf(o.source, o.destination, o.protocol)
	source, ok := k.opened[e]
	if !ok {
		source, ok = k.closed[e]
	}
	if ok && source == o.destination {
		o.source, o.destination = o.destination, o.source
	}
	return ok
}

// mostKept is how many translated connections are known at a time, if not all are listed.
const mostKept = 2 * mostTranslated

// unlisted begins the state of a reading of NAT44's table: what is known of connections whose addresses it did not list.
func (k *known) unlisted(r *sessions.Reading) (map[sessions.Translated]flows.Counts, map[dial]netip.AddrPort, map[ends]bool) {
	now, endpoints, assumed := map[sessions.Translated]flows.Counts{}, map[dial]netip.AddrPort{}, map[ends]bool{}
	for t, counts := range k.translated {
		if r.Listed == nil || r.Listed[t.Inside] || len(now) >= mostKept {
			continue
		}
		now[t] = counts
		if e, _ := endsOf(t.Client, t.Endpoint, t.Protocol); k.assumed[e] {
			assumed[e] = true
		}
		if t.Dialled != t.Endpoint {
			endpoints[dial{t.Client, t.Dialled, t.Protocol}] = t.Endpoint
		}
	}
	return now, endpoints, assumed
}

// release begins a look: it returns the sessions that wait.
func (k *known) release() []observation {
	held := k.held
	k.held, k.current = nil, false
	return held
}

// endpointOf returns the endpoint to which NAT44 translated a connection.
func (k *known) endpointOf(o *observation) (netip.AddrPort, bool) {
	if o.translation != nil {
		return o.destination, o.translation.Dialled != o.destination
	}
	end, ok := k.endpoints[dial{o.source, o.destination, o.protocol}]
	return end, ok && o.seenBy == BySessions
}

// holds keeps a session of a pod that dialled a Service or a node until NAT44's table is read: it has the endpoint.
func (w *Watcher) holds(l *Loop, o *observation, f *flows.Flow) bool {
	k := &w.known
	if k.current || o.seenBy != BySessions || !o.input || l.Policies == nil || f.Destination.Kind != flows.Service && f.Destination.Kind != flows.Node || len(k.held) >= mostSessions {
		return false
	}
	k.held = append(k.held, *o)
	return true
}

// deniesEndpoint evaluates the sender's egress policies about the endpoint of a translated connection: its list saw the dialled address, which it lets
// pass. It notes their decision. If they deny, another list drops the packets behind NAT44, so there is no connection: the capture shows it.
func (w *Watcher) deniesEndpoint(l *Loop, o *observation, f *flows.Flow) bool {
	end, translated := w.known.endpointOf(o)
	if !translated || l.Policies == nil || !o.input || o.dropped != "" {
		return false
	}
	interfaces, ofPod := l.Policies.InterfacesAt(o.source.Addr())
	if !ofPod {
		return false
	}
	h := o.headerOf()
	h.Dst, h.DstPort = end.Addr(), end.Port()
	for _, iface := range interfaces {
		r, ok := w.rules.egressOf(l, iface, h)
		switch {
		case !ok:
		case !r.Denied:
			f.Decision, f.Direction = r.Decision(), "egress"
		default:
			return h.Dst != h.Src // a pod reaches itself through a Service whatever its policies say
		}
	}
	return false
}
