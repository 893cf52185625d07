package controller

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// New returns a controller over processors whose renderers write to values. It calls the processors in the given order, so a
// processor may build on the output of renderers before it.
func New(cfg Config, values *Values, processors ...Processor) *Controller {
	c := &Controller{
		cfg: cfg, processors: processors, values: values, asks: make([]*event.Locate, len(processors)),
		queries:  make(chan func()),
		ended:    make(chan struct{}),
		sources:  map[string]*event.SyncStatus{},
		inSync:   map[string]bool{},
		statuses: map[string]event.ValueStatus{},
		refused:  map[model.Ref]event.Change{},
	}
	for _, name := range cfg.Sources {
		c.sources[name] = &event.SyncStatus{Source: name}
	}
	c.publishHealth(false)
	return c
}

// Step takes one event and returns the transaction that follows from it, or nil. While a transaction is in flight, changes
// accumulate; its Committed event releases the next. Step first completes the work that the last Step left to Meanwhile.
func (c *Controller) Step(ev event.Event) *event.Txn {
	c.Meanwhile()
	c.accept(ev)
	txn := c.nextTxn()
	c.stepped(ev, txn != nil)
	away := !c.vpp.Connected && c.vpp.Err != nil // VPP failed; it is not merely still starting
	if txn == nil && c.inFlight == 0 && !c.vppBehind() && len(c.lanes) == 0 && (c.phase == running || away) && c.cfg.Observer.Idle != nil {
		c.cfg.Observer.Idle()
	}
	return txn
}

// accept takes one event; next returns the transaction that follows.
func (c *Controller) accept(ev event.Event) {
	notify(c.cfg.Observer.Event, ev)
	switch ev.(type) {
	case *event.Update:
	case *event.Tick:
		c.fresh = c.fresh || !c.rests || len(c.values.dirty) > 0
	default:
		c.fresh = true
	}
	switch ev := ev.(type) {
	case *event.Update:
		c.update(ev)
	case *event.SyncStatus:
		c.sync(ev)
	case *event.Dataplane:
		c.dataplane(ev)
	case *event.External:
		c.external(ev)
	case *event.Located:
		c.located, c.news = ev, true
		for _, p := range c.processors {
			p.Located(ev)
		}
		c.causes.addCause("interfaces")
	case *event.VPPStatus:
		c.vpp = *ev
		c.watch(ev)
		notify(c.cfg.Observer.VPP, ev)
	case *event.Committed:
		c.committed(ev)
	case *event.Tick:
		c.tick(ev.Now)
	default:
		panic(fmt.Sprintf("controller: unknown event %T", ev))
	}
}

// watch passes VPP's version to the processors that depend on it.
func (c *Controller) watch(ev *event.VPPStatus) {
	for _, p := range c.processors {
		if w, ok := p.(Watcher); ok {
			w.VPP(ev)
		}
	}
}

func notify[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}

func (c *Controller) update(ev *event.Update) {
	if c.phase != running { // everything earlier is part of the first sync
		c.takeChanges(ev.Changes)
		return
	}
	c.takeChanges(c.admit(ev.Changes))
}

// takeChanges hands changes to the processors.
func (c *Controller) takeChanges(changes []event.Change) {
	c.fresh, c.news = c.fresh || len(changes) > 0, c.news || len(changes) > 0
	c.applyChanges(changes)
	for _, ch := range changes {
		notify(c.cfg.Observer.Changed, ch)
		if ch.Err != nil {
			c.refused[ch.Ref] = ch
			notify(c.cfg.Observer.Refused, ch)
		} else {
			delete(c.refused, ch.Ref)
		}
		if c.phase == running {
			c.causes.addCause(causeOf(ch.Ref))
		}
		if slice, ok := ch.Object.(*model.EndpointSlice); ok {
			c.trigger(slice.TriggerTime)
		}
	}
}

// applyChanges hands changes to the processors. Each gets all of them in order. The processors are independent of each other, so for many
// changes applyChanges runs them in parallel.
func (c *Controller) applyChanges(changes []event.Change) {
	const many = 1000
	each := func(p Processor) {
		for _, ch := range changes {
			p.Apply(ch)
		}
	}
	if len(c.processors) == 0 {
		return
	}
	first, others := c.processors[0], c.processors[1:]
	if len(changes) < many {
		each(first)
		for _, p := range others {
			each(p)
		}
		return
	}
	var wg sync.WaitGroup
	for _, p := range others {
		wg.Go(func() { each(p) })
	}
	each(first)
	wg.Wait()
}

// trigger records a change that the next transaction answers.
func (c *Controller) trigger(t time.Time) {
	if c.phase == running && !t.IsZero() {
		c.triggered.addTrigger(t)
	}
}

func (c *Controller) sync(ev *event.SyncStatus) {
	c.sources[ev.Source] = ev
	if ev.Status == event.InSync {
		c.inSync[ev.Source] = true
	}
	notify(c.cfg.Observer.Source, ev)
}

func (c *Controller) tick(now time.Time) {
	c.now = now
	if c.sentAt.IsZero() { // sent before the first Tick
		c.sentAt = now
	}
}

func (c *Controller) committed(ev *event.Committed) {
	ended := ev.Seq != 0 && ev.Seq == c.inFlight
	if ended {
		c.inFlight = 0
	}
	c.left = nil
	if len(ev.Left) > 0 {
		c.left = make(map[string]struct{}, len(ev.Left))
		for _, key := range ev.Left {
			c.left[key] = struct{}{}
		}
	}
	if was := c.fair.behind; was != (len(c.left) > 0) {
		if c.fair.behind = !was; was {
			c.beginShares()
		}
	}
	for _, st := range ev.Statuses {
		switch st.State {
		case event.Configured, event.Removed, event.Nonexistent:
			delete(c.statuses, st.Key)
		default:
			c.statuses[st.Key] = st
		}
	}
	c.last = ev
	c.done = c.done || c.phase == running && c.inFlight == 0 && ev.Err == nil
	if ended {
		c.turns.ends(ev.Cost)
		c.answerQuestions(c.underWay, ev.Seq, ev.Err)
		c.underWay = nil
	}
	c.publishHealth(false) // a reader that the event wakes must find the new state
	notify(c.cfg.Observer.Committed, ev)
}

// ready reports that every source was in sync once.
func (c *Controller) ready() bool {
	for name := range c.sources {
		if !c.inSync[name] {
			return false
		}
	}
	return true
}

// nextTxn returns the transaction that is due, or nil.
func (c *Controller) nextTxn() *event.Txn {
	if c.inFlight != 0 || !c.ready() {
		return nil
	}
	switch c.phase {
	case waiting:
		if !c.vpp.Connected {
			return nil
		}
		c.phase = locating
		if ask := c.locate(); ask != nil {
			return c.sendTxn(&event.Txn{Cause: "locate", Locate: ask})
		}
		return c.first()
	case locating:
		if c.located == nil {
			return nil
		}
		return c.first()
	}
	for {
		c.takeChanges(c.releaseChanges())
		txn := c.turn()
		if txn != nil || c.waits() || c.vppBehind() || c.turns.clock != nil {
			return txn // Run continues with the lanes, behind the events that wait
		}
		c.beginShares()
	}
}

// turn returns the transaction for what happened since the last turn; nil: none. Changes that wait in lanes make no turn: an attack of a
// thousand changes a second would make a thousand. A second that passes while nothing is left to do makes none either: it only asks for lookups.
func (c *Controller) turn() *event.Txn {
	if !c.fresh {
		if !c.rests {
			return nil
		}
		ask := c.locate()
		if ask == nil {
			return nil
		}
		c.rests = false
		return c.sendTxn(&event.Txn{Cause: "locate", Locate: ask})
	}
	c.fresh, c.rests = false, false
	c.turns.begins()
	txn := c.changeTxn()
	c.load.learn(c.vppBehind())
	c.turns.rendered()
	if txn == nil {
		c.turns.ends(0)
		c.rests = c.trouble == nil && c.way == nil && !c.vppBehind() && c.values.begun+len(c.values.late) == 0 && !anyAgain(c.processors)
	}
	return txn
}

// locate returns the lookups in VPP that are due; nil: none.
func (c *Controller) locate() *event.Locate {
	fresh := false
	for i, p := range c.processors {
		l, ok := p.(Locator)
		if !ok {
			continue
		}
		if ask := l.Locate(c.now); ask != nil {
			c.asks[i], fresh = ask, true
		}
	}
	if !fresh {
		return nil
	}
	return union(c.asks)
}

// union returns a request that contains all others. For a field with a single value, the first request that sets it wins.
func union(asks []*event.Locate) *event.Locate {
	asks = slices.DeleteFunc(slices.Clone(asks), func(l *event.Locate) bool { return l == nil })
	if len(asks) == 1 {
		return asks[0]
	}
	all := &event.Locate{Pods: map[netip.Addr]string{}, Override: asks[0].Override}
	for _, ask := range asks {
		for a, name := range ask.Pods {
			if _, twice := all.Pods[a]; !twice {
				all.Pods[a] = name
			}
		}
		all.NodeIPs = append(all.NodeIPs, ask.NodeIPs...)
		all.Remote = append(all.Remote, ask.Remote...)
		all.Names = append(all.Names, ask.Names...)
	}
	return all
}

func (c *Controller) each(do func(Processor) error) error {
	var errs []error
	for _, p := range c.processors {
		errs = append(errs, do(p))
	}
	return errors.Join(errs...)
}

// maxInterim bounds the interim states between two events. The rest waits for the next event.
const maxInterim = 8

// flushChanges collects the pending changes and reports whether an interim state follows. It skips an interim state without requests to
// VPP, because no answer would arrive to continue from.
func (c *Controller) flushChanges() (changes map[string]proto.Message, again bool) {
	s := progress{held: c.held(), behind: c.vppBehind()}
	s.refuses = s.held && c.now.Sub(c.heldSince) >= maxPrecede
	ending := func() (now, late []netip.Addr) { return c.values.due(), c.values.overdue(c.left, c.statuses, c.now) }
	for range maxInterim {
		s.between = announceTo(c.processors, dataplane.Progress{Behind: s.behind, Acknowledged: len(c.left) == 0, Ending: ending})
		s.rest = len(s.between) > 0 || c.values.begun > 0
		c.values.rest = s.rest && !s.held && !anyIn(c.left, c.way)
		waits := false
		c.report(c.each(func(p Processor) error {
			if s.pauses(p, c.way != nil, c.values.rest && c.values.begun > 0) {
				_, stepwise := p.(Stepwise)
				waits = waits || !stepwise && c.news
				return nil
			}
			return p.Flush()
		}))
		c.news = waits
		changes = c.values.changedValues(c.left)
		again = waits || c.values.begun > 0 || anyAgain(c.processors)
		if len(changes) > 0 || !again || s.held || s.behind {
			break
		}
	}
	c.load.wrote(changes)
	c.going(changes, again)
	return changes, again
}

// anyAgain reports that a processor has more to hand over.
func anyAgain(list []Processor) bool {
	return slices.ContainsFunc(list, func(p Processor) bool {
		s, ok := p.(Stepwise)
		return ok && s.Again()
	})
}

func (c *Controller) changeTxn() *event.Txn {
	changes, again := c.flushChanges()
	txn := &event.Txn{Values: changes, Locate: c.locate()}
	postponed := len(c.values.held) > 0
	if txn.Empty() {
		if postponed {
			return nil
		}
		c.answerQuestions(c.due, 0, nil)
		c.due = nil
		if again { // held: the cause is not finished
			return nil
		}
		c.causes, c.triggered = causes{}, triggers{}
		return nil
	}
	if !postponed {
		c.carry()
		txn.Awaited = len(c.underWay) > 0
	}
	if txn.Cause = c.causes.String(); txn.Cause == "" {
		txn.Cause = "locate"
	}
	if again { // the next transaction has the same cause and answers the trigger
		return c.sendTxn(txn)
	}
	txn.Triggered = c.triggered.times
	c.causes, c.triggered = causes{}, triggers{}
	return c.sendTxn(txn)
}

func (c *Controller) report(err error) {
	c.trouble = err
	if err != nil {
		notify(c.cfg.Observer.Trouble, err)
	}
}

func (c *Controller) sendTxn(txn *event.Txn) *event.Txn {
	c.seq++
	c.beginShares()
	txn.Seq, c.inFlight, c.sentAt = c.seq, c.seq, c.now
	notify(c.cfg.Observer.Sent, txn)
	return txn
}

// refusals returns the refused objects, sorted by reference.
func (c *Controller) refusals() []event.Change {
	out := make([]event.Change, 0, len(c.refused))
	for _, ch := range c.refused {
		out = append(out, ch)
	}
	slices.SortFunc(out, func(a, b event.Change) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	return out
}
