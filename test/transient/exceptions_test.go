package transient_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
)

// drop is a packet, or a connection that lives on, that policies and Services allow before and after a change, and that did not pass meanwhile.
type drop struct {
	probe    probe
	w        *watch
	first    int // message
	messages int
	passing  bool // it was for an endpoint that the Service does not have before, or after the change
	live     bool // a connection that lives on
	dead     bool // it does not pass after the change either
	waits    bool // its server's packets waited for the client's next one, and no more
	text     func() string
}

// exception is a kind of drops that VPP's messages leave no way around (ADR 32).
type exception struct {
	name string
	fits func(d *drop) bool
	most int // bounds their number in 1,000 changes of a node
}

// exceptions are all kinds; the first that fits counts.
var exceptions = []exception{
	{
		name: "nat44 takes another mapping for an address and port by removing the old one first",
		fits: func(d *drop) bool { return !d.live && d.probe.service && isRemoval(d.w.messages[d.first-1]) },
		most: 150,
	},
	{
		name: "an endpoint joins or leaves a Service in the same change that opens or closes its lists: closed wins",
		fits: func(d *drop) bool { return d.passing },
		most: 50,
	},
	{
		name: "nat44 removes a mapping, or an endpoint of one, and with it the sessions of all mappings to the same endpoints",
		fits: func(d *drop) bool {
			removes := func(m string) bool { return isRemoval(m) || isLess(m) }
			return d.live && d.probe.service && (slices.ContainsFunc(d.w.messages[:d.first], removes) || slices.ContainsFunc(d.w.earlier, removes)) // a silent one sends late
		},
		most: 200,
	},
	{
		name: "TCP of a server on a high port that no object declares: only a session admits its packets, which a change of lists ends",
		fits: func(d *drop) bool {
			return d.live && d.probe.packet.Proto == model.TCP && d.probe.packet.DstPort >= 32768
		},
		most: 80,
	},
	{
		name: "a server that sends first: its interface had no lists, so no session admits its packets until the client's next one",
		fits: func(d *drop) bool { return d.waits },
		most: 50,
	},
	{
		name: "SCTP: VPP's sessions do not distinguish its ports, so a server's answers let a new association pass that the lists deny",
		fits: func(d *drop) bool {
			return d.live && !d.dead && d.probe.packet.Proto == model.SCTP && !slices.ContainsFunc(d.w.messages, isFilter)
		},
		most: 10,
	},
	{
		name: "SCTP where a filter for its ports begins or ends: the interim state permits only what both lists permit by the same rules",
		fits: func(d *drop) bool {
			return d.probe.packet.Proto == model.SCTP && slices.ContainsFunc(d.w.messages, isFilter)
		},
		most: 20,
	},
	{
		name: "an interim state without a table for packets that pass by different rules: it would be too big",
		fits: func(d *drop) bool {
			return !d.probe.service && !d.dead && slices.ContainsFunc(d.w.messages[:d.first], d.withoutTable)
		},
		most: 50,
	},
}

// withoutTable reports whether a message gives an interface that the packet passes lists without a table of an interim state, where it passes: inwards at
// the sender's interface, outwards at others.
func (d *drop) withoutTable(message string) bool {
	at, is := strings.CutPrefix(message, "acl_interface_set_acl_list sw_if_index=")
	in, out, _ := strings.Cut(at, " output=")
	if strings.HasPrefix(at, d.probe.door+" ") {
		out = in
	}
	return is && !strings.Contains(out, "both-")
}

// readdressed reports whether a packet of SCTP passes because nat44 gives it another address (ADR 32): a message just removed a mapping or an endpoint, with
// sessions of the receiver, and the lists are still those before the change.
func (w *watch) readdressed(s sighting) bool {
	p, last := w.probes[s.probe].packet, s.after-1
	return p.Proto == model.SCTP && p.Dst.Is4() && (isRemoval(w.messages[last]) || isLess(w.messages[last])) &&
		!slices.ContainsFunc(slices.Concat(w.earlier, w.messages[:last]), changesLists)
}

// changesLists reports whether a message changes what access lists, or filters for ports of SCTP, permit.
func changesLists(m string) bool { return strings.HasPrefix(m, "acl_") || isFilter(m) }

// isRemoval reports whether a message removes a mapping of nat44.
func isRemoval(message string) bool {
	return strings.HasPrefix(message, "nat44_add_del_lb_static_mapping ") && !strings.Contains(message, "is_add=true")
}

// isLess reports whether a message removes an endpoint of a mapping.
func isLess(message string) bool {
	return strings.HasPrefix(message, "nat44_lb_static_mapping_add_del_local ") && !strings.Contains(message, "is_add=true")
}

// isFilter reports whether a message changes a filter for ports of SCTP.
func isFilter(message string) bool { return strings.HasPrefix(message, "classify_") }

// exceptionOf returns the exception that a drop is; nil: none.
func exceptionOf(d *drop) *exception {
	if i := slices.IndexFunc(exceptions, func(e exception) bool { return e.fits(d) }); i >= 0 {
		return &exceptions[i]
	}
	return nil
}

// ledger counts drops by exception.
type ledger struct {
	mu    sync.Mutex
	count map[string]dropped
}

// dropped is the number of drops of a kind, and the most messages of one of a new connection.
type dropped struct{ drops, longest int }

// book counts a drop, or reports it if no exception fits.
func (l *ledger) book(d *drop) (problem string) {
	e := exceptionOf(d)
	if e == nil {
		return d.text()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == nil {
		l.count = map[string]dropped{}
	}
	n := l.count[e.name]
	if n.drops++; !d.live {
		n.longest = max(n.longest, d.messages)
	}
	l.count[e.name] = n
	return ""
}

// check logs the counts and compares them with their bounds.
func (l *ledger) check(t *testing.T, changes int64) {
	t.Helper()
	for _, e := range exceptions {
		n := l.count[e.name]
		if t.Logf("%5d drops, for %d messages at most: %s", n.drops, n.longest, e.name); int64(n.drops) > max(3, int64(e.most)*changes/1000) {
			t.Errorf("%d drops in %d changes, more than %d in 1,000: %s", n.drops, changes, e.most, e.name)
		}
	}
}
