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
	tellers  = 5                     // how many agents tell what all of them see
	turn     = 10 * time.Second      // how long one of them waits for the one before
	brief    = 5 * time.Second       // what all agents see must last that long to be told
	settled  = 30 * time.Second      // what this node has must last that long to be told, and be over that long
	refresh  = 30 * time.Minute      // how often a problem that lasts is told again; Events live for an hour
	recent   = 5 * time.Minute       // an Event from this short a time before a problem came up is of the same one: an agent was restarted
	spread   = 20 * time.Millisecond // times the number of nodes: the time over which nodes tell what each of them has
	requests = 50                    // a second, of all agents together
	burst    = 10                    // requests an agent may send at once
)

// cause is what there is one Event for.
type cause struct {
	uid    types.UID
	reason event.Reason
	text   string
}

// entry is a problem there is.
type entry struct {
	cause
	object kube.Identity
	ref    model.Ref
	since  time.Time
	due    time.Time // when to tell it, or to see again whether it is ours to tell
	told   bool
}

// object is one with problems, now or until a short while ago.
type object struct {
	id     kube.Identity
	ref    model.Ref
	told   event.Reason // the last that was told of it and is to be taken back; "": nothing
	well   time.Time    // since when it has no problem; zero: it has one
	due    time.Time    // when to say so
	healed time.Time    // when it was told that it has none; zero: something else was told since, or nothing
}

// ledger knows what is to be told of objects, and when. It does nothing itself, and has no clock.
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

// who finds out who an object is.
type who func(model.Ref) (kube.Identity, bool)

// identity is what an object is told from others by: its UID, or, where that is not known, what it is called.
func identity(id *kube.Identity) types.UID {
	if id.UID != "" {
		return id.UID
	}
	return types.UID(id.GroupKind().String() + " " + id.Namespace + "/" + id.Name)
}

// look takes over what there is now. Objects that are not known (any more) are forgotten with all that was told of them.
func (l *ledger) look(now time.Time, problems []event.Problem, nodes []string, find who) {
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
		case o.told == "" && now.Sub(o.healed) > recent:
			delete(l.objects, uid) // nobody was told, or everything
		case o.well.IsZero():
			o.well, o.due = now, now.Add(l.wait(cause{uid: uid, reason: o.told}))
		}
	}
}

// wait is how long to wait before something is told for the first time.
func (l *ledger) wait(c cause) time.Duration {
	if c.reason.Everywhere() {
		return brief + time.Duration(l.rank(c.uid, tellers))*turn
	}
	return settled + time.Duration(hash(string(c.uid), l.node, c.text)%uint64(max(1, len(l.nodes))))*spread
}

// rank is how many other nodes come before this one in telling what all of them see of an object; most if there are as many or more.
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
	x := h.Sum64() // its high bits differ little between names that differ in the end only
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return x ^ x>>33
}

// statement is one Event to be told.
type statement struct {
	cause
	object kube.Identity
	after  time.Time // an Event that was seen since then says it already
}

// name is the Event's: the same on every node.
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

// allFixed is what is told of an object without problems.
const allFixed = "what was not in VPP as it asks for is there now"

// next is the statement that has been due for longest; nil if there is none, or no token for it. It is given once: done or failed says
// what became of it.
func (l *ledger) next(now time.Time) *statement {
	var due []*entry
	for _, e := range l.entries {
		if e.due.After(now) {
			continue
		}
		if e.reason.Everywhere() && l.rank(e.uid, tellers) == tellers {
			e.due = now.Add(refresh) // others tell; they may go
			continue
		}
		due = append(due, e)
	}
	var well []*object
	for _, o := range l.objects {
		if !o.well.IsZero() && o.told != "" && !o.due.After(now) {
			well = append(well, o)
		}
	}
	if len(due)+len(well) == 0 || !l.bucket.take(now) {
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

// after is since when an Event of that problem is recent enough to be left as it is.
func (l *ledger) after(now time.Time, e *entry) time.Time {
	switch {
	case e.told:
		return now.Add(-refresh / 2)
	case l.objects[e.uid].healed.IsZero():
		return e.since.Add(-recent)
	}
	return e.since // what there is says less than that it was repaired
}

// done notes that a statement was told.
func (l *ledger) done(now time.Time, s *statement) {
	o := l.objects[s.uid]
	if s.reason == event.Rendered {
		if o != nil {
			o.told, o.healed = "", now
		}
		return
	}
	if e := l.entries[s.cause]; e != nil {
		e.told, e.due = true, now.Add(refresh)
	}
	if o != nil {
		o.told, o.healed = s.reason, time.Time{}
	}
}

// failed notes that a statement was not told: others have their turn before it is tried again.
func (l *ledger) failed(now time.Time, s *statement) {
	if e := l.entries[s.cause]; e != nil {
		e.due = now.Add(settled)
	}
	if o := l.objects[s.uid]; o != nil && s.reason == event.Rendered {
		o.due = now.Add(settled)
	}
}

// refused notes that a statement cannot be told as it is: it is tried again at the next refresh, if at all.
func (l *ledger) refused(now time.Time, s *statement) {
	if e := l.entries[s.cause]; e != nil {
		e.due = now.Add(refresh)
	}
	if o := l.objects[s.uid]; o != nil && s.reason == event.Rendered {
		o.told = ""
	}
}

// bucket holds tokens; each request takes one.
type bucket struct {
	rate   float64 // tokens a second
	tokens float64
	last   time.Time // zero: full
}

func (b *bucket) take(now time.Time) bool {
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
