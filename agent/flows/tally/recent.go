package tally

import "github.com/contiv-agent/contiv-agent/space"

// mostRecent bounds the connections that are remembered.
const mostRecent = 8192

// recent is connections that one source of flows has shown, so that they count once when a second source shows them: a connection that leaves the
// cluster is in the table of NAT44, and in the sessions of access lists.
type recent struct {
	by   map[connection]string // the source that showed it
	ring []connection
	next int
}

type connection struct {
	header space.Header
	egress bool
}

// again reports whether another source has shown a connection before, and forgets the connection then.
func (r *recent) again(h space.Header, egress bool, seenBy string) bool {
	c := connection{h, egress}
	if was, known := r.by[c]; known && was != seenBy {
		delete(r.by, c)
		return true
	}
	if len(r.ring) < mostRecent {
		r.ring = append(r.ring, c)
	} else {
		delete(r.by, r.ring[r.next])
		r.ring[r.next] = c
	}
	r.next = (r.next + 1) % mostRecent
	r.by[c] = seenBy
	return false
}
