package tally

import "github.com/contiv-agent/contiv-agent/space"

// mostRecent bounds the connections that are remembered.
const mostRecent = 8192

// recent is connections that sources of flows have shown, so that one counts once when several sources show it: a connection that leaves the cluster
// is in the table of NAT44, and in the sessions of access lists.
type recent struct {
	by   map[connection]map[string]int // how often each source showed it
	ring []connection
	next int
}

type connection struct {
	header space.Header
	egress bool
}

// again reports whether another source has shown a connection as often as this one now has.
func (r *recent) again(h space.Header, egress bool, seenBy string) (again bool) {
	c := connection{h, egress}
	shown := r.by[c]
	if shown == nil {
		shown = map[string]int{}
		r.remember(c)
		r.by[c] = shown
	}
	shown[seenBy]++
	for source, n := range shown {
		again = again || source != seenBy && n >= shown[seenBy]
	}
	return again
}

// remember puts a connection in the place of the oldest one if there are too many.
func (r *recent) remember(c connection) {
	if len(r.ring) < mostRecent {
		r.ring = append(r.ring, c)
		return
	}
	delete(r.by, r.ring[r.next])
	r.ring[r.next] = c
	r.next = (r.next + 1) % mostRecent
}
