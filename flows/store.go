package flows

import (
	"container/list"
	"net/netip"
	"slices"
)

// Store holds flows in the order of their latest change. It belongs to one goroutine.
type Store struct {
	limit     int
	number    uint64 // of the latest change
	flows     map[identity]*list.Element
	order     *list.List // of *Flow, the least recent first
	forgotten uint64
	lastGone  uint64 // the number of the flow that was forgotten last
}

// identity is the part of a flow by which observations are added up. The names are part of it, because an address may get another pod.
type identity struct {
	node, source, destination string
	from, to                  netip.Addr
	protocol                  string
	port                      uint16
	verdict                   Verdict
	direction, reason, seenBy string
	staged                    string
	dialled                   netip.AddrPort
}

func identityOf(f *Flow) identity {
	id := identity{
		node: f.Node, source: f.Source.String(), destination: f.Destination.String(), from: f.Source.Address, to: f.Destination.Address,
		protocol: f.Protocol, port: f.Port, verdict: f.Verdict, direction: f.Direction, reason: f.Decision.Text, seenBy: f.SeenBy,
	}
	if s := f.Decision.Staged; s != nil {
		id.staged = string(s.Verdict) + " " + s.By + " " + s.Text
	}
	if f.Translation != nil {
		id.dialled = f.Translation.Dialled
	}
	return id
}

// Identity is equal for flows that a Store adds up, and differs for others. It can be the key of a map.
func (f *Flow) Identity() any { return identityOf(f) }

// NewStore returns a store without flows, for at most limit flows.
func NewStore(limit int) *Store {
	return &Store{limit: max(limit, 1), flows: map[identity]*list.Element{}, order: list.New()}
}

// Add adds an observation: its counts raise those of the flow with the same identity. The least recent flow is forgotten if there are too
// many.
func (s *Store) Add(seen Flow) {
	s.number++
	id := identityOf(&seen)
	if e := s.flows[id]; e != nil {
		f := e.Value.(*Flow)
		f.Number, f.Last, f.SourcePort, f.Translation, f.Source, f.Destination = s.number, seen.Last, seen.SourcePort, seen.Translation, seen.Source, seen.Destination
		f.raise(seen.Counts)
		s.order.MoveToBack(e)
		return
	}
	seen.Number = s.number
	s.flows[id] = s.order.PushBack(&seen)
	if len(s.flows) > s.limit {
		oldest := s.order.Front()
		delete(s.flows, identityOf(oldest.Value.(*Flow)))
		s.order.Remove(oldest)
		s.forgotten++
		s.lastGone = oldest.Value.(*Flow).Number
	}
}

// Len is the number of flows.
func (s *Store) Len() int { return len(s.flows) }

// Number is the number of the latest change.
func (s *Store) Number() uint64 { return s.number }

// Forgotten counts the flows that the store had to forget.
func (s *Store) Forgotten() uint64 { return s.forgotten }

// Lost counts the changes after a number that Select no longer shows because their flows are forgotten. Changes between them that a later
// change of the same flow replaced are counted, too.
func (s *Store) Lost(after uint64) uint64 { return max(s.lastGone, after) - after }

// Select returns copies of the latest flows that changed after a number and match the filter, at most that many, in the order of their
// latest change.
func (s *Store) Select(after uint64, filter *Filter, most int) []Flow {
	out := []Flow{}
	for e := s.order.Back(); e != nil && len(out) < most; e = e.Prev() {
		f := e.Value.(*Flow)
		if f.Number <= after {
			break
		}
		if filter.Matches(f) {
			out = append(out, *f)
		}
	}
	slices.Reverse(out)
	return out
}
