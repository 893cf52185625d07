package service

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// part is the state of one EndpointSlice.
type part struct {
	id     model.SliceID
	now    *model.EndpointSlice // nil: it was deleted, or belongs to no service
	listed *model.EndpointSlice // the form in users; nil: none
	number uint32               // its number in users
	queued bool                 // listed is not up to date
}

// users indexes which slices have an endpoint with an address. Changes accumulate until flush: no code reads the index in between,
// and on another core the update costs no time. Most addresses are in one slice only, and 100,000 of them may exist. So the lists
// are chains in one array, and neither the array nor the map for IPv4 holds a pointer.
type users struct {
	at4     map[uint32]uint32 // address → its first link
	at6     map[netip.Addr]uint32
	links   []link // the first one is unused
	unused  uint32 // first link of the chain of free ones; 0: none
	numbers []*part
	free    []uint32 // free numbers
	queue   []*part
}

// link is one slice of an address.
type link struct{ number, next uint32 }

func newUsers() users {
	return users{at4: map[uint32]uint32{}, at6: map[netip.Addr]uint32{}, links: make([]link, 1)}
}

func word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func (u *users) head(a netip.Addr) uint32 {
	if a.Is4() {
		return u.at4[word(a)]
	}
	return u.at6[a]
}

func (u *users) setHead(a netip.Addr, at uint32) {
	switch {
	case a.Is4() && at == 0:
		delete(u.at4, word(a))
	case a.Is4():
		u.at4[word(a)] = at
	case at == 0:
		delete(u.at6, a)
	default:
		u.at6[a] = at
	}
}

// slicesOf returns the slices that have an address, as of the last flush, without those removed since.
func (u *users) slicesOf(a netip.Addr) (list []*part) {
	for at := u.head(a); at != 0; at = u.links[at].next {
		if s := u.numbers[u.links[at].number]; s.now != nil {
			list = append(list, s)
		}
	}
	return list
}

// queueSlice records a new form of a slice.
func (u *users) queueSlice(s *part) {
	if !s.queued {
		s.queued = true
		u.queue = append(u.queue, s)
	}
}

// flushQueue applies all changes. It calls touched for addresses that a slice gained or lost, and gone for removed slices.
func (u *users) flushQueue(touched func(netip.Addr), gone func(*part)) {
	u.prepare()
	for _, s := range u.queue {
		s.queued = false
		was := s.listed
		if was == nil && s.now != nil {
			u.number(s)
		}
		u.reindex(s, touched)
		if s.listed = s.now; s.now != nil {
			continue
		}
		if was != nil {
			u.numbers[s.number] = nil
			u.free = append(u.free, s.number)
		}
		gone(s)
	}
	u.queue = nil
}

// prepare allocates once for the first flush.
func (u *users) prepare() {
	if len(u.at4) > 0 || len(u.queue) < 100 {
		return
	}
	n := 0
	for _, s := range u.queue {
		if s.now != nil {
			n += len(s.now.Endpoints)
		}
	}
	u.at4 = make(map[uint32]uint32, n)
	u.links = slices.Grow(u.links, n)
	u.numbers = slices.Grow(u.numbers, len(u.queue))
}

func (u *users) number(s *part) {
	if n := len(u.free); n > 0 {
		s.number, u.free = u.free[n-1], u.free[:n-1]
		u.numbers[s.number] = s
		return
	}
	s.number = uint32(len(u.numbers))
	u.numbers = append(u.numbers, s)
}

func (u *users) reindex(s *part, touched func(netip.Addr)) {
	if s.listed == nil {
		if s.now != nil {
			for i := range s.now.Endpoints {
				u.use(s.now.Endpoints[i].Addr, s.number, touched)
			}
		}
		return
	}
	old, now := endpointAddrs(s.listed), endpointAddrs(s.now)
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].Less(now[0]):
			u.unuse(old[0], s.number, touched)
			old = old[1:]
		case len(old) == 0 || now[0].Less(old[0]):
			u.use(now[0], s.number, touched)
			now = now[1:]
		default:
			old, now = old[1:], now[1:]
		}
	}
}

// endpointAddrs returns a slice's endpoint addresses, sorted, each once.
func endpointAddrs(s *model.EndpointSlice) []netip.Addr {
	if s == nil {
		return nil
	}
	out := make([]netip.Addr, len(s.Endpoints))
	for i := range s.Endpoints {
		out[i] = s.Endpoints[i].Addr
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// use puts a slice before the others of the address, unless it was added just before.
func (u *users) use(a netip.Addr, number uint32, touched func(netip.Addr)) {
	head := u.head(a)
	if head != 0 && u.links[head].number == number {
		return
	}
	at := u.unused
	if at != 0 {
		u.unused = u.links[at].next
	} else {
		at = uint32(len(u.links))
		u.links = append(u.links, link{})
	}
	u.links[at] = link{number, head}
	u.setHead(a, at)
	touched(a)
}

func (u *users) unuse(a netip.Addr, number uint32, touched func(netip.Addr)) {
	before := uint32(0)
	for at := u.head(a); at != 0; before, at = at, u.links[at].next {
		if u.links[at].number != number {
			continue
		}
		next := u.links[at].next
		if before == 0 {
			u.setHead(a, next)
		} else {
			u.links[before].next = next
		}
		u.links[at] = link{next: u.unused}
		u.unused = at
		break
	}
	touched(a)
}
