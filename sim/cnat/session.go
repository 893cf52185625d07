package cnat

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Flags of a session.
const (
	flagHasSNAT uint32 = 1 << iota
	flagAllocPort
	flagNoClient
	flagNoNAT
	_
	flagRetrySNAT
)

type sessionKey struct {
	Tuple
	proto uint8
	loc   Location
}

// stamp is shared by a session and its reverse session.
type stamp struct {
	seen, idle time.Duration
	users      int // destroyed with the last; a user that remains then has expired
}

type session struct {
	to      Tuple
	backend netip.Addr // destination of forwarding; invalid: none
	flags   uint32
	stamp   *stamp
}

// dynamic is the state that packets change, for Snapshot and Restore.
type dynamic struct {
	sessions map[sessionKey]*session
	clients  map[netip.Addr]*client
	ports    [portKinds]portMap

	recording bool
	journal   []func()
}

// Mark identifies a state for Restore. Marks nest: restoring one makes later ones invalid.
type Mark struct{ at int }

// Snapshot marks sessions, their clients and their ports. Configuration is not part of it, and must not change between Snapshot and
// Restore.
func (e *Engine) Snapshot() Mark {
	e.recording = true
	return Mark{at: len(e.journal)}
}

// Restore returns to the state of the mark, which stays usable.
func (e *Engine) Restore(m Mark) {
	recording := e.recording
	e.recording = false // the undo itself is not recorded
	for i := len(e.journal) - 1; i >= m.at; i-- {
		e.journal[i]()
		e.journal[i] = nil
	}
	e.journal, e.recording = e.journal[:m.at], recording
}

// Release forgets all marks.
func (e *Engine) Release() { e.recording, e.journal = false, nil }

func (e *Engine) undo(f func()) {
	if e.recording {
		e.journal = append(e.journal, f)
	}
}

func (e *Engine) putSession(k sessionKey, s *session) {
	old, had := e.sessions[k]
	e.sessions[k] = s
	e.undo(func() {
		if had {
			e.sessions[k] = old
		} else {
			delete(e.sessions, k)
		}
	})
}

func (e *Engine) delSession(k sessionKey) {
	if old, had := e.sessions[k]; had {
		delete(e.sessions, k)
		e.undo(func() { e.sessions[k] = old })
	}
}

// touch restarts the idle time of a session.
func (e *Engine) touch(s *stamp) {
	old := s.seen
	s.seen = e.now()
	e.undo(func() { s.seen = old })
}

func (e *Engine) setIdle(s *stamp, idle time.Duration) {
	old := s.idle
	s.idle = idle
	e.undo(func() { s.idle = old })
}

func (e *Engine) use(s *stamp, n int) {
	s.users += n
	e.undo(func() { s.users -= n })
}

// create is cnat_session_create.
func (e *Engine) create(k sessionKey, s *session) {
	s.stamp = &stamp{seen: e.now(), idle: idleNew, users: 1}
	e.putSession(k, s)
}

// createReturn is cnat_rsession_create: it makes the reverse session, unless another flow has its key. (With RETRY_SNAT VPP then
// tries another port, but changes the wrong field and gives up.)
func (e *Engine) createReturn(k sessionKey, s *session, loc Location, flags uint32) {
	e.use(s.stamp, 1)
	back := sessionKey{Tuple: s.to.reverse(), proto: k.proto, loc: loc}
	if _, taken := e.sessions[back]; taken {
		return
	}
	e.putSession(back, &session{to: k.Tuple.reverse(), flags: flags, stamp: s.stamp})
	if flags&flagNoClient == 0 {
		e.learn(s.to.Src)
	}
}

func (t Tuple) reverse() Tuple {
	return Tuple{Src: t.Dst, Dst: t.Src, SrcPort: t.DstPort, DstPort: t.SrcPort}
}

// backFrom is the key of the answers to a packet, at a node.
func (k sessionKey) backFrom(at Location) sessionKey {
	return sessionKey{Tuple: k.reverse(), proto: k.proto, loc: at}
}

// Expire is VPP's scanner, which walks over the sessions once a second.
func (e *Engine) Expire() {
	for _, k := range e.sessionKeys(e.expired) {
		s := e.sessions[k]
		if s == nil {
			continue // it was deleted as another session's reverse session
		}
		e.freeReturn(k, s)
		e.freeSession(k, s)
	}
}

func (e *Engine) expired(s *session) bool {
	return s.stamp.users <= 0 || e.now() > s.stamp.seen+s.stamp.idle
}

// freeReturn is cnat_reverse_session_free. It does not find the reverse session of ip4-cnat-tx, which expires by itself.
func (e *Engine) freeReturn(k sessionKey, s *session) {
	back := sessionKey{Tuple: s.to.reverse(), proto: k.proto, loc: AtOutput}
	if k.loc == AtOutput {
		back.loc = AtInput
	}
	if r := e.sessions[back]; r != nil {
		e.freeSession(back, r)
	}
}

// freeSession is cnat_session_free.
func (e *Engine) freeSession(k sessionKey, s *session) {
	if s.flags&flagAllocPort != 0 {
		e.freePort(s.to.SrcPort, k.proto)
	}
	if s.flags&flagNoClient == 0 {
		e.forgetSession(k.Dst)
	}
	if s.stamp.users > 0 {
		e.use(s.stamp, -1)
	}
	e.delSession(k)
}

func (e *Engine) sessionKeys(which func(*session) bool) []sessionKey {
	var keys []sessionKey
	for k, s := range e.sessions {
		if which(s) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, sessionKey.compare)
	return keys
}

func (k sessionKey) compare(o sessionKey) int {
	return cmp.Or(cmp.Compare(k.loc, o.loc), cmp.Compare(k.proto, o.proto), k.Src.Compare(o.Src), k.Dst.Compare(o.Dst),
		cmp.Compare(k.SrcPort, o.SrcPort), cmp.Compare(k.DstPort, o.DstPort))
}

// Sessions returns all sessions, sorted.
func (e *Engine) Sessions() []Session {
	var out []Session
	for _, k := range e.sessionKeys(func(*session) bool { return true }) {
		s := e.sessions[k]
		out = append(out, Session{Match: k.Tuple, New: s.to, Proto: k.proto, Location: k.loc, Idle: s.stamp.idle, Seen: s.stamp.seen})
	}
	return out
}
