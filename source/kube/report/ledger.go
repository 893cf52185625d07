package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

const (
	reporters = 5                     // how many agents report a problem that all of them see
	turn      = 10 * time.Second      // how long each of these agents waits for the one before it
	brief     = 5 * time.Second       // how long a problem that all agents see must last before it is reported
	settled   = 30 * time.Second      // how long a problem of this node must last before it is reported, and be gone before that is
	refresh   = 30 * time.Minute      // how often a lasting problem is reported again; Events live for an hour
	recent    = 5 * time.Minute       // an Event that precedes a problem by no more than this describes the same problem: the agent was restarted
	spread    = 20 * time.Millisecond // times the number of nodes: the period over which the nodes report their own problems
	requests  = 50                    // per second, of all agents together
	burst     = 10                    // requests an agent may send at once
)

// cause identifies an Event: one per cause.
type cause struct {
	uid    types.UID
	reason event.Reason
	text   string
}

// entry is a current problem.
type entry struct {
	cause
	object kube.Identity
	ref    model.Ref
	since  time.Time
	due    time.Time // when to report the problem, or to check again whether this node has to
	sent   bool
}

// object is an object that has problems, or had some until recently.
type object struct {
	id     kube.Identity
	ref    model.Ref
	sent   event.Reason // reason of the last Event that is not yet taken back; "": none
	well   time.Time    // since when the object has no problem; zero: it has one
	due    time.Time    // when to report that it has none
	healed time.Time    // when that was reported; zero: never, or a problem was reported since
}

// ledger decides what to report of objects, and when. It does no I/O and has no clock.
type ledger struct {
	node    string
	nodes   []string
	entries map[cause]*entry
	objects map[types.UID]*object
	bucket  bucket
}

func newLedger(node string) *ledger {
	return &ledger{node: node, entries: map[cause]*entry{}, objects: map[types.UID]*object{}}
}

// lookup finds the identity of an object.
type lookup func(model.Ref) (kube.Identity, bool)

// identity returns the key of an object: its UID, or its kind and name if the UID is unknown.
func identity(id *kube.Identity) types.UID {
	if id.UID != "" {
		return id.UID
	}
	return types.UID(id.GroupKind().String() + " " + id.Namespace + "/" + id.Name)
}

// recordProblems records the current problems. It forgets objects that are unknown (any longer), with all that was reported about
// them.
func (l *ledger) recordProblems(now time.Time, problems []event.Problem, nodes []string, find lookup) {
	l.nodes = nodes
	l.bucket.rate = min(1, requests/float64(max(1, len(nodes))))
	open, there := map[types.UID]bool{}, map[cause]bool{}
	for _, p := range problems {
		id, ok := find(p.Ref)
		if !ok {
			continue
		}
		uid := identity(&id)
		c := cause{uid, p.Reason, p.Text}
		open[uid], there[c] = true, true
		if l.entries[c] == nil {
			l.entries[c] = &entry{cause: c, object: id, ref: p.Ref, since: now, due: now.Add(l.wait(c))}
		}
		o := l.objects[uid]
		if o == nil {
			o = &object{id: id, ref: p.Ref}
			l.objects[uid] = o
		}
		o.id, o.well = id, time.Time{}
	}
	for c := range l.entries {
		if !there[c] {
			delete(l.entries, c)
		}
	}
	for uid, o := range l.objects {
		switch id, ok := find(o.ref); {
		case !ok || identity(&id) != uid:
			delete(l.objects, uid)
		case open[uid]:
		case o.sent == "" && now.Sub(o.healed) > recent:
			delete(l.objects, uid) // no report to take back, or all are taken back
		case o.well.IsZero():
			o.well, o.due = now, now.Add(l.wait(cause{uid: uid, reason: o.sent}))
		}
	}
}

// wait returns how long to wait before the first report of a cause.
func (l *ledger) wait(c cause) time.Duration {
	if c.reason.Everywhere() {
		return brief + time.Duration(l.rank(c.uid, reporters))*turn
	}
	return settled + time.Duration(hash(string(c.uid), l.node, c.text)%uint64(max(1, len(l.nodes))))*spread
}

// rank returns how many other nodes are before this one in reporting what all nodes see of an object, and at most most.
func (l *ledger) rank(uid types.UID, most int) int {
	mine, before := hash(string(uid), l.node), 0
	for _, node := range l.nodes {
		if node != l.node && hash(string(uid), node) < mine {
			if before++; before == most {
				break
			}
		}
	}
	return before
}

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	x := h.Sum64() // FNV's high bits differ little between names that differ at the end only
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return x ^ x>>33
}

// statement is one Event to send.
type statement struct {
	cause
	object kube.Identity
	after  time.Time // an Event seen since then makes this one superfluous
}

// name returns the Event's name. It is the same on every node.
func (s *statement) name() string {
	sum := sha256.New()
	for _, part := range []string{string(s.uid), string(s.reason), s.text} {
		sum.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		sum.Write([]byte(part))
	}
	const digits = 16
	name := s.object.Name
	if most := 253 - 1 - digits; len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name + "." + hex.EncodeToString(sum.Sum(nil)[:digits/2])
}

// allFixed is the note of the Event for an object whose problems are over.
const allFixed = "all problems are solved: VPP has what the object asks for"

// nextStatement returns the statement that has been due for longest, or nil if none is due or no token is left. The caller then
// calls done, failed or refused.
func (l *ledger) nextStatement(now time.Time) *statement {
	var due []*entry
	for _, e := range l.entries {
		if e.due.After(now) {
			continue
		}
		if e.reason.Everywhere() && l.rank(e.uid, reporters) == reporters {
			e.due = now.Add(refresh) // other nodes report it; they may be removed
			continue
		}
		due = append(due, e)
	}
	var well []*object
	for _, o := range l.objects {
		if !o.well.IsZero() && o.sent != "" && !o.due.After(now) {
			well = append(well, o)
		}
	}
	if len(due)+len(well) == 0 || !l.bucket.takeToken(now) {
		return nil
	}
	if len(due) > 0 {
		e := slices.MinFunc(due, func(a, b *entry) int {
			return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.object.Name, b.object.Name), cmp.Compare(a.text, b.text))
		})
		return &statement{cause: e.cause, object: e.object, after: l.after(now, e)}
	}
	o := slices.MinFunc(well, func(a, b *object) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.id.Name, b.id.Name)) })
	return &statement{cause: cause{identity(&o.id), event.Rendered, allFixed}, object: o.id, after: o.well}
}

// after returns since when an existing Event of that problem makes a new one superfluous.
func (l *ledger) after(now time.Time, e *entry) time.Time {
	switch {
	case e.sent:
		return now.Add(-refresh / 2)
	case l.objects[e.uid].healed.IsZero():
		return e.since.Add(-recent)
	}
	return e.since // an Event from before the repair is outdated
}

// done records that a statement was sent.
func (l *ledger) done(now time.Time, s *statement) {
	o := l.objects[s.uid]
	if s.reason == event.Rendered {
		if o != nil {
			o.sent, o.healed = "", now
		}
		return
	}
	if e := l.entries[s.cause]; e != nil {
		e.sent, e.due = true, now.Add(refresh)
	}
	if o != nil {
		o.sent, o.healed = s.reason, time.Time{}
	}
}

// failed records that a statement was not sent. Other statements are next before it is retried.
func (l *ledger) failed(now time.Time, s *statement) {
	if e := l.entries[s.cause]; e != nil {
		e.due = now.Add(settled)
	}
	if o := l.objects[s.uid]; o != nil && s.reason == event.Rendered {
		o.due = now.Add(settled)
	}
}

// refused records that the API server rejects a statement. A problem is retried at the next refresh, a repair never.
func (l *ledger) refused(now time.Time, s *statement) {
	if e := l.entries[s.cause]; e != nil {
		e.due = now.Add(refresh)
	}
	if o := l.objects[s.uid]; o != nil && s.reason == event.Rendered {
		o.sent = ""
	}
}

// bucket is a token bucket; each request takes one token.
type bucket struct {
	rate   float64 // tokens per second
	tokens float64
	last   time.Time // zero: full
}

func (b *bucket) takeToken(now time.Time) bool {
	if b.last.IsZero() {
		b.tokens = burst
	} else {
		b.tokens = min(burst, b.tokens+b.rate*max(0, now.Sub(b.last)).Seconds())
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
