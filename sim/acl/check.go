package acl

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Match identifies a rule by its place: the list of the interface, the ACL in the list, the rule in the ACL, all counted from 0.
type Match struct {
	Output bool // the output list
	Place  int  // -1: none matched
	Tag    string
	Rule   int // -1: none matched
	Action Action
}

// Verdict is the result for a packet.
type Verdict struct {
	Pass bool
	Match
	// Session: the packet belongs to a session; Match is the rule that made it, with its place at that time.
	Session bool
	// New: the packet made a session.
	New bool
	// Full: the session table had no room for its session.
	Full bool
	// Renewed: the packet's session belonged to an older policy and has ended.
	Renewed bool
	// Lists is the number of ACLs that were searched, if no rule matched.
	Lists int
}

// String returns the verdict's line.
func (v Verdict) String() string {
	if v.Rule < 0 {
		return fmt.Sprintf("no rule of %d acls matches", v.Lists)
	}
	rule := fmt.Sprintf("acl %d (%s) rule %d %s", v.Place, v.Tag, v.Rule, v.Action)
	switch {
	case v.Session:
		return "session of " + rule
	case v.New:
		return rule + ", new session"
	case v.Full:
		return rule + ", but too many sessions"
	}
	return rule
}

// Check evaluates a packet at the input or output of an interface that has such a list (OnInput, OnOutput).
func (e *Engine) Check(p *packet.Packet, swIf uint32, in bool) Verdict {
	e.expire()
	k, d := keyOf(p, swIf, in), directionOf(in)
	renewed := false
	if s := e.flows[k]; s != nil {
		e.track(s, p, d)
		if !e.reclassify || !e.stale(s, swIf, d) {
			return Verdict{Pass: true, Match: s.match, Session: true}
		}
		e.endSession(s)
		renewed = true
	}
	v := e.judge(k, p, d)
	v.Renewed = renewed
	if v.Rule < 0 || v.Action != Reflect {
		return v
	}
	if !e.sessionRoom() {
		e.recycle()
		v.Pass, v.Full = false, true
		return v
	}
	e.track(e.addSession(k, v.Match), p, d)
	v.New = true
	return v
}

// judge searches the list.
func (e *Engine) judge(k key, p *packet.Packet, d direction) Verdict {
	q := query{key: k, tcpFlags: p.TCPFlags, fragment: p.Fragment.Later(), bug: e.bug(p)}
	list := e.lists[d][k.swIf]
	for place, i := range list {
		a := &e.acls[i]
		n := a.first(&q)
		if n < 0 {
			continue
		}
		e.countHit(a, n)
		act := a.rules[n].Action
		return Verdict{Pass: act != Deny, Match: Match{Output: d == output, Place: place, Tag: a.tag, Rule: n, Action: act}}
	}
	return Verdict{Match: Match{Output: d == output, Place: -1, Rule: -1}, Lists: len(list)}
}

func (e *Engine) bug(p *packet.Packet) prefixBug {
	switch {
	case !e.cfg.PrefixBug:
		return noBug
	case e.linear || p.Fragment.Later(): // VPP looks for later fragments by linear lookup
		return bare
	}
	return within
}

// few rules are compared one by one
const few = 8

func (a *acl) first(q *query) int {
	if len(a.rules) <= few || q.fragment {
		return linear(a.rules, q)
	}
	outside := q.bug == bare
	if a.index == nil || a.outside != outside {
		a.index, a.outside = newIndex(a.rules, outside), outside
	}
	return a.index.first(a.rules, q)
}

func linear(rules []Rule, q *query) int {
	for i := range rules {
		if q.matches(&rules[i]) {
			return i
		}
	}
	return -1
}

func (e *Engine) countHit(a *acl, rule int) {
	if !e.counters {
		return
	}
	if a.hits == nil {
		a.hits = make([]uint64, len(a.rules))
	}
	hits := a.hits
	hits[rule]++
	e.undo(func() { hits[rule]-- })
}
