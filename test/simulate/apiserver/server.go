package apiserver

import (
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Faults are what stands between clients and the objects. The zero value is none. Counters permit that faults overlap.
type Faults struct {
	Cut    int           // > 0: no client connects, and streams end
	Empty  int           // > 0: the server has no objects
	Slow   time.Duration // the longest additional time of each answer and each event
	Errors int           // of 1,000 requests, answered 429, 500, 503 or 504
	Torn   int           // > 0: events and answers end in their middle
	Few    int           // > 0: the server has no room for further watches, and answers 429
	Behind int           // > 0: the cache stays at the state before the last Set (Server.FallBehind)
}

// Server is an API server. Create with New.
type Server struct {
	mu       sync.Mutex
	faults   Faults
	seed     uint64
	streams  bool // lists may be streamed, as since Kubernetes 1.34
	wanted   map[id]*stored
	objects  map[id]*entry
	log      []change
	revision int
	former   int // revision before the last Set
	oldest   int // watches from earlier revisions get 410 Gone
	frozen   int // revision of the cache while it is behind
	watching map[*stream]bool
	longer   time.Duration // factor of the times of watches and of bookmarks
}

type id struct {
	resource resource
	name     string
}

type entry struct {
	*stored
	revision int
}

// change is one change in the log. before and after are nil if the object did not exist.
type change struct {
	revision      int
	before, after *stored
}

// New returns a server without objects. The seed draws its latencies and errors, and whether it streams lists.
func New(seed uint64) *Server {
	return &Server{
		seed: seed, streams: seed%4 != 0, objects: map[id]*entry{}, wanted: map[id]*stored{}, watching: map[*stream]bool{}, revision: 100, former: 100, longer: 1,
	}
}

// Lengthen makes watches last that many times as long as clients ask for, and bookmarks as rare, from the next watches on.
func (s *Server) Lengthen(factor int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longer = time.Duration(factor)
}

// Set makes the server's objects equal to these. Objects that change get a new version, in an order that the seed draws.
func (s *Server) Set(objects []Object) error {
	wanted := map[id]*stored{}
	for _, o := range objects {
		st, err := store(o)
		if err != nil {
			return err
		}
		wanted[id{st.resource, st.name}] = st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted, s.former = wanted, s.revision
	s.apply()
	return nil
}

// Change changes the faults.
func (s *Server) Change(f func(*Faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.faults)
	if s.faults.Cut > 0 {
		s.endStreams(io.ErrUnexpectedEOF)
	}
	s.apply()
	s.wake()
}

// Expire compacts the log: watches end with 410 Gone, and so do those from an earlier revision.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.oldest = s.revision
	for t := range s.watching {
		t.expired = true
	}
	s.wake()
}

// EndWatches ends all watches: in order, as after the time that a client asked for, or as by a lost connection.
func (s *Server) EndWatches(inOrder bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if inOrder {
		s.endStreams(io.EOF)
	} else {
		s.endStreams(io.ErrUnexpectedEOF)
	}
	s.wake()
}

// FallBehind ends all watches and freezes the cache at the state before the last Set, as if clients reached another server whose cache is behind, until Change
// has set Behind to 0.
func (s *Server) FallBehind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Behind++; s.faults.Behind == 1 {
		s.frozen = max(s.former, s.oldest)
	}
	s.endStreams(io.ErrUnexpectedEOF)
	s.wake()
}

// apply makes the objects what they should be, under mu.
func (s *Server) apply() {
	wanted := s.wanted
	if s.faults.Empty > 0 {
		wanted = nil
	}
	var changes []change
	for k, w := range wanted {
		if had := s.objects[k]; had == nil {
			changes = append(changes, change{after: w})
		} else if had.content != w.content {
			changes = append(changes, change{before: had.stored, after: w})
		}
	}
	for k, had := range s.objects {
		if wanted[k] == nil {
			changes = append(changes, change{before: had.stored})
		}
	}
	if len(changes) == 0 {
		return
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.key().sortKey(), b.key().sortKey()) })
	rng := rand.New(rand.NewPCG(s.seed, uint64(s.revision)))
	rng.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	for _, c := range changes {
		s.revision++
		c.revision = s.revision
		if c.after == nil {
			delete(s.objects, c.key())
		} else {
			s.objects[c.key()] = &entry{c.after, s.revision}
		}
		s.log = append(s.log, c)
	}
	s.wake()
}

func (c change) key() id {
	if c.after != nil {
		return id{c.after.resource, c.after.name}
	}
	return id{c.before.resource, c.before.name}
}

func (k id) sortKey() string { return k.resource.apiVersion + " " + k.resource.plural + " " + k.name }

// wake wakes all streams, under mu.
func (s *Server) wake() {
	for t := range s.watching {
		t.more.Signal()
	}
}

// endStreams ends all streams with an error, under mu.
func (s *Server) endStreams(err error) {
	for t := range s.watching {
		t.end(err)
	}
}

// cached is the revision that answers from the cache have, under mu.
func (s *Server) cached() int {
	if s.faults.Behind > 0 {
		return s.frozen
	}
	return s.revision
}

// asOf returns the objects of a resource at a revision, sorted by name, under mu.
func (s *Server) asOf(r resource, revision int) (out []*entry) {
	objects := map[string]*entry{}
	if revision >= s.revision {
		for k, e := range s.objects {
			if k.resource == r {
				objects[k.name] = e
			}
		}
	} else {
		for _, c := range s.log {
			switch {
			case c.revision > revision:
			case c.key().resource != r:
			case c.after == nil:
				delete(objects, c.key().name)
			default:
				objects[c.after.name] = &entry{c.after, c.revision}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		out = append(out, objects[name])
	}
	return out
}
